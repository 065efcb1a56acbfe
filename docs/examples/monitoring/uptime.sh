#!/bin/sh
# Exit code 0, or 1 with the reason on standard error.
python manage.py pgqueue health
python manage.py pgqueue health --queue mail --age 60 --workers 2
python manage.py pgqueue health --json
