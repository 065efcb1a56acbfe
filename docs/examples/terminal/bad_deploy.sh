#!/bin/sh
# After a bad deploy, hold the task, and look at its jobs.
python manage.py pgqueue pause --task shop.tasks.send_receipt --reason "bad deploy" --for 2h
python manage.py pgqueue jobs --task shop.tasks.send_receipt --status failed --since 2h
python manage.py pgqueue retry --task shop.tasks.send_receipt --since 2h --dry-run
# When the mended version is deployed, go on, and run the failed jobs again.
python manage.py pgqueue resume --task shop.tasks.send_receipt
python manage.py pgqueue retry --task shop.tasks.send_receipt --since 2h --yes
