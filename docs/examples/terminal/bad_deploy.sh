#!/bin/sh
# After a bad deploy: hold the task, and look at what it has done.
python manage.py pgqueue pause --task shop.tasks.send_receipt --reason "bad deploy" --for 2h
python manage.py pgqueue jobs --task shop.tasks.send_receipt --status failed --since 2h
python manage.py pgqueue retry --task shop.tasks.send_receipt --since 2h --dry-run
# The mended version is deployed: go on, and run again what has failed.
python manage.py pgqueue resume --task shop.tasks.send_receipt
python manage.py pgqueue retry --task shop.tasks.send_receipt --since 2h --yes
