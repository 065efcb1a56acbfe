"""The search box."""

from __future__ import annotations

from django import forms


class SearchForm(forms.Form):
    """Shows an error message for a NUL character, which PostgreSQL would refuse."""

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
