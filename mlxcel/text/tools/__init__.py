"""Calls of tools in an answer's text: the forms models write them in, read, filtered, forced."""
