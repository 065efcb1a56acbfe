from datetime import timedelta

PGQUEUE = {
    "SCHEDULES": {
        "nightly-report": {
            "task": "shop.schedules.build_daily_report",
            "cron": "0 3 * * *",
            "timezone": "Europe/Paris",
        },
        "stock": {
            "task": "shop.schedules.sync_stock",
            "every": timedelta(minutes=10),
            "catch_up": "skip",
        },
    },
}
