"""Turns figures into plain text for the command line. The app does its own drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import msgspec

Printed = TypeVar("Printed", bound="msgspec.Struct")


def printed(
    record: msgspec.Struct, document: type[Printed], **given: object
) -> Printed:
    """The document made of the fields of a record, and of those given."""
    own = (name for name in document.__struct_fields__ if name not in given)
    return document(**given, **{name: getattr(record, name) for name in own})
