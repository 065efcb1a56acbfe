"""The tasks of a made-up shop: how often they run, how long they take, and how they fail."""

from __future__ import annotations

from typing import NamedTuple


class Task(NamedTuple):
    """A task, with the names that the statements expect."""

    path: str
    queue_name: str
    weight: float
    """Its share of the jobs."""
    seconds: float
    """How long half of its jobs take at most."""
    waits: float
    """How long they wait, in the middle."""
    failing: float = 0
    """The share of its jobs that fail."""


class Error(NamedTuple):
    """A way to fail. Each of them is one group."""

    task_path: str
    weight: float
    name: str
    message: str
    """``%s`` is the number of an order."""
    place: str
    function: str
    deploy: bool = False
    """Whether only the bad deploy has it."""


#: The queue of the stories. Claims by SQL take what is due in a queue, so each story has it for itself.
QUEUE = "demo-flows"

TASKS = (
    Task("demoshop.mail.send_receipt", "demo-mail", 30, 0.12, 0.02, 0.0005),
    Task("demoshop.mail.send_newsletter", "demo-mail", 18, 0.3, 0.4),
    Task("demoshop.orders.charge_card", "demo-orders", 12, 0.9, 0.03, 0.006),
    Task("demoshop.orders.ship", "demo-orders", 10, 0.4, 0.05, 0.002),
    Task("demoshop.orders.sync_stock", "demo-orders", 8, 2.5, 0.1),
    Task("demoshop.images.thumbnail", "demo-images", 12, 1.6, 0.8, 0.003),
    Task("demoshop.images.convert_video", "demo-images", 0.5, 95, 20, 0.02),
    Task("demoshop.reports.daily_sales", "demo-reports", 0.5, 40, 5),
    Task("demoshop.reports.export_orders", "demo-reports", 2, 12, 3, 0.01),
    Task("demoshop.search.index_product", "demo-search", 7, 0.06, 0.01),
)

ERRORS = (
    Error("demoshop.orders.charge_card", 5, "demoshop.gateway.GatewayTimeout",
          "the gateway did not answer within 10 s (order %s)", "demoshop/gateway.py", "charge"),
    Error("demoshop.orders.charge_card", 2, "demoshop.gateway.CardDeclined",
          "the card of order %s was declined", "demoshop/gateway.py", "raise_for_status"),
    Error("demoshop.orders.charge_card", 60, "AttributeError",
          "'NoneType' object has no attribute 'currency'", "demoshop/prices.py", "in_currency", True),
    Error("demoshop.orders.ship", 1, "requests.exceptions.ConnectionError",
          "('Connection aborted.', ConnectionResetError(104))", "demoshop/parcels.py", "label"),
    Error("demoshop.orders.ship", 40, "AttributeError",
          "'NoneType' object has no attribute 'currency'", "demoshop/prices.py", "in_currency", True),
    Error("demoshop.images.thumbnail", 3, "PIL.UnidentifiedImageError",
          "cannot identify image file 'uploads/%s.heic'", "demoshop/images.py", "open_image"),
    Error("demoshop.images.convert_video", 1, "TimeoutError",
          "the encoder did not answer", "demoshop/images.py", "convert_video"),
    Error("demoshop.reports.export_orders", 2, "django.db.utils.OperationalError",
          "canceling statement due to statement timeout", "demoshop/reports.py", "export_orders"),
    Error("demoshop.mail.send_receipt", 1, "smtplib.SMTPRecipientsRefused",
          "{'customer-%s@example.com': (550, b'no such user')}", "demoshop/mail.py", "deliver"),
)  # fmt: skip
