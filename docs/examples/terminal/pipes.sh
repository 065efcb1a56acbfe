#!/bin/sh
# Jobs that are chosen by something that the options do not know: here, ten of the failed ones, at random.
python manage.py pgqueue jobs --queue mail --status failed --limit 1000 --quiet | shuf -n 10 |
    xargs -r python manage.py pgqueue retry
# What has run longest, by a program that reads the JSON.
python manage.py pgqueue jobs --status running --json | python slowest.py
