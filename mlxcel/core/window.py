"""How the context is divided among the slots, and what bounds one of them. Counts are tokens."""


def slot_share(ctx_size: int, slots: int) -> int:
    """What each slot gets of `limits.ctx_size`; 0: the model's own window."""
    return ctx_size // slots


def effective_window(share: int, train_window: int) -> int:
    """What a prompt and its answer may hold together; 0: unbounded."""
    return share if share > 0 else train_window
