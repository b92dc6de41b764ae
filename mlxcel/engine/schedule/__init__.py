"""Who runs next: pure decisions, and the state they rest on."""
