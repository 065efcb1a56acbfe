#!/bin/sh
# Jobs that the options cannot select, such as ten failed ones at random.
python manage.py pgqueue jobs --queue mail --status failed --limit 1000 --quiet | shuf -n 10 |
    xargs -r python manage.py pgqueue retry
# The longest running jobs, by a program that reads the JSON.
python manage.py pgqueue jobs --status running --json | python slowest.py
