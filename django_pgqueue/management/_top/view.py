"""What the user of ``top`` has chosen with the keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from .panes import PANES, SORTS

__all__ = ["View"]


@dataclass(slots=True)
class View:
    """The state that keys change."""

    pane: str = ""
    """The only pane that is shown; empty for all."""
    is_paused: bool = False
    sorts: dict[str, str] = field(default_factory=lambda: {name: orders[0] for name, orders in SORTS.items()})

    def press(self, key: str) -> bool:
        """Change what a key changes. Return whether anything has changed."""
        if key == "p":
            self.is_paused = not self.is_paused
        elif key == "0":
            self.pane = ""
        elif key.isdecimal() and 0 < int(key) <= len(PANES):
            self.pane = PANES[int(key) - 1]
        elif key == "s":
            name = self.pane or PANES[0]
            orders = SORTS[name]
            self.sorts[name] = orders[(orders.index(self.sorts[name]) + 1) % len(orders)]
        else:
            return False
        return True

    @property
    def help(self) -> str:
        """What the keys do."""
        numbers = "  ".join(f"{number} {name}" for number, name in enumerate(("all", *PANES)))
        pause = "go on" if self.is_paused else "pause"
        return f"q quit  p {pause}  r now  {numbers}  s sorted by {self.sorts[self.pane or PANES[0]]}"
