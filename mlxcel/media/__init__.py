"""Images, audio and videos that a request names: where they may come from, and how large they may
be. Knows URLs, addresses, folders and bytes; nothing of formats, models or routes.

No route reads media yet: a model that takes text only answers 501 before anything is fetched.
"""
