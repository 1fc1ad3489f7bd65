"""Turns figures into plain text for the command line. The app does its own drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import msgspec

Printed = TypeVar("Printed", bound="msgspec.Struct")


def printed(
    record: msgspec.Struct, document: type[Printed], **given: object
) -> Printed:
    """Return a document with the fields of a record, and with those in `given`, which
    have precedence."""
    own_fields = (name for name in document.__struct_fields__ if name not in given)
    return document(**given, **{name: getattr(record, name) for name in own_fields})
