from django.db.models import QuerySet

from django_pgqueue.models import Job

from .models import Invoice, Order


def failed_for(email: str) -> QuerySet[Invoice]:
    return Invoice.objects.filter(job__status="failed", order__email=email).select_related("job")


def jobs_of(order: Order) -> QuerySet[Job]:
    return Job.objects.filter(invoices_invoice__order=order)
