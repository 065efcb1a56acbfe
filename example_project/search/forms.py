"""The search box."""

from __future__ import annotations

from django import forms


class SearchForm(forms.Form):
    """Refuses what PostgreSQL cannot take (a NUL) in words, instead of failing."""

    q = forms.CharField(
        label="Search",
        max_length=200,
        required=False,
        widget=forms.SearchInput(
            attrs={
                "placeholder": 'words, "a phrase", -not, or',
                "autocomplete": "off",
                "spellcheck": "false",
            }
        ),
    )
