from django_pgqueue.models import Job

job = Job.objects.latest("id")
print(job.status, job.attempts, job.errors[-1]["class"])
