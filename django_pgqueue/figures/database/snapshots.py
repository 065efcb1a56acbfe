"""Held snapshots: the transactions, prepared transactions and replication slots that keep dead rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.utils.translation import gettext as _

from .part import Part, State, rows_of, statement_text, words

__all__ = ["OLDEST", "Held", "read"]

OLDEST = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class Held:
    """Something that holds a snapshot, or a transaction that is open."""

    kind: str
    """ "transaction", "prepared" or "slot"."""
    name: str
    """The program of the session, the name of the prepared transaction, or that of the slot."""
    pid: int | None
    role: str
    state: str
    seconds: float | None
    """How long it has been there; None for a slot, and if that is not visible."""
    transactions: int | None
    """How many transactions have begun since; None if it holds nothing yet."""
    is_visible: bool
    statement: str
    """Empty unless asked for."""

    @property
    def is_too_old(self) -> bool:
        """Whether to act. A slot that nobody uses keeps dead rows, or write-ahead log, for ever."""
        if self.kind == "slot":
            return self.state == "inactive"
        return self.seconds is not None and self.seconds > OLDEST


def read(alias: str, *, statements: bool = False) -> Part:
    """Return what holds snapshots, the oldest first."""
    rows = rows_of(alias, "snapshots", statements=statements)
    held = [replace(each, statement=statement_text(each.statement)) for each in (Held(*row) for row in rows)]
    ages = [each.seconds for each in held if each.seconds is not None]
    hidden = sum(not each.is_visible for each in held)
    found = [_("No transaction is open.")]
    if ages:
        found = [_("The oldest transaction has been open for %(time)s.") % {"time": words(max(ages))}]
    elif held:
        found = []
    slots = sum(each.kind == "slot" and each.is_too_old for each in held)
    if slots:
        found.append(_("Replication slots that nobody uses: %(count)d.") % {"count": slots})
    state = State.ACT if any(each.is_too_old for each in held) else State.FINE
    if hidden:
        found.append(
            _("The ages of %(count)d sessions are not visible. Grant pg_read_all_stats to see them.")
            % {"count": hidden}
        )
        state = State.HIDDEN if state == State.FINE else state
    rule = _(
        "Act when a transaction has been open for more than %(limit)s, or when a replication slot is not"
        " used: VACUUM keeps all rows that died since, in every table. End the session or roll the prepared"
        " transaction back, drop the slot, and set idle_in_transaction_session_timeout for web processes."
    ) % {"limit": words(OLDEST)}
    return Part("snapshots", state, " ".join(found), rule, held)
