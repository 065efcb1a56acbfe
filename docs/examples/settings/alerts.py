import os

PGQUEUE = {
    "ALERTS": ["shop.alerts.mail", "shop.alerts.post_to_chat"],
    "ALERTS_INTERVAL": 60,
    # A problem has ended when it has been gone for ten minutes.
    "ALERTS_CLEAR_AFTER": 600,
    # When a queue is late, and how many workers it needs.
    "HEALTH": {"*": {"age": 300}, "mail": {"age": 60, "workers": 2}},
    # A muted failure is reported again when it happens in another version.
    "VERSION": os.environ.get("GIT_COMMIT", "")[:12],
}
ON_CALL = ["oncall@example.com"]
CHAT_WEBHOOK = os.environ.get("CHAT_WEBHOOK", "")
