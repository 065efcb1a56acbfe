"""The site's own app."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig

#: Where each picture has a face.
CENTER = (4, 7)


class HomeConfig(AppConfig):
    name = "tests.wagtail.site.home"

    def ready(self) -> None:
        """Let Willow find a face in each picture. It needs OpenCV for that otherwise."""
        from willow.plugins.pillow import PillowImage
        from willow.registry import registry

        def detect_faces(image: Any) -> list[tuple[int, int, int, int]]:
            return [(2, 4, 6, 10)]

        registry.register_operation(PillowImage, "detect_faces", detect_faces)
