# List the largest groups of failures, then show one with its traceback, then run its jobs again.
python manage.py pgqueue failures --span 7d
python manage.py pgqueue failures 7d1f1be4a3a3d0c0f7d5a51f9d2a6c3f8e0b9a12
python manage.py pgqueue retry --status failed --fingerprint 7d1f1be4a3a3d0c0f7d5a51f9d2a6c3f8e0b9a12
