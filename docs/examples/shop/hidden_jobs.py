from django_pgqueue.admin import JobAdmin


class OwnJobAdmin(JobAdmin):
    def get_queryset(self, request):
        jobs = super().get_queryset(request)
        return jobs if request.user.is_superuser else jobs.exclude(queue_name="payroll")
