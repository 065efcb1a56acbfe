from django_pgqueue.admin import JobAdmin


class TenantJobAdmin(JobAdmin):
    """A user outside of the staff group sees the jobs of the tenant that has his or her user name."""

    def get_queryset(self, request):
        jobs = super().get_queryset(request)
        sees_all = request.user.is_superuser or request.user.groups.filter(name="staff").exists()
        return jobs if sees_all else jobs.filter(tenant=request.user.get_username())
