from django.urls import path

from django_pgqueue import views

urlpatterns = [
    path("queue/metrics/", views.metrics),
    path("queue/health/", views.health),
]
