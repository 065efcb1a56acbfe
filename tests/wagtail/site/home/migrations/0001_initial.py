from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = [("wagtailcore", "0098_apitoken"), ("wagtailimages", "0027_image_description")]
    operations = [
        migrations.CreateModel(
            "ArticlePage",
            [
                ("page_ptr", models.OneToOneField(
                    "wagtailcore.page", models.CASCADE, auto_created=True, parent_link=True, primary_key=True,
                    serialize=False,
                )),
                ("body", models.TextField(blank=True)),
                ("picture", models.ForeignKey(
                    "wagtailimages.image", models.SET_NULL, blank=True, null=True, related_name="+"
                )),
            ],
            bases=("wagtailcore.page",),
        ),
    ]  # fmt: skip
