from django_pgqueue.redaction import DEFAULT_NAMES

PGQUEUE = {
    "REDACT": [
        *DEFAULT_NAMES,
        "iban",  # iban, customerIban, iban_of_sender
        r"re:\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b",  # card numbers, wherever they are
    ],
}
