"""Schemathesis, with whatever arguments it is given."""

from hypothesis.strategies._internal import lazy

# What a strategy is called in messages is read from its source, deep in the stack, where the parser of
# Python 3.11 fails now and then (`AST constructor recursion depth mismatch`). Nobody needs these names.
lazy.get_pretty_function_description = lambda function: "function"

from schemathesis.cli import schemathesis  # noqa: E402

schemathesis()
