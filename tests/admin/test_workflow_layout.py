"""Where the nodes and arrows of a workflow are drawn."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.admin.graph import layout as module
from django_pgqueue.admin.graph.layout import Layout, crossings, layout, nearest, ordered

Graph = tuple[int, list[tuple[int, int]]]


@st.composite
def graphs(draw: st.DrawFn, *, cyclic: bool = False) -> Graph:
    """A number of nodes, and arrows between them: from smaller to larger numbers if there is no cycle."""
    count = draw(st.integers(1, 12))
    pairs = [(a, b) for a, b in product(range(count), repeat=2) if cyclic or a < b]
    arrows = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    return count, arrows


def overlaps(drawing: Layout[int]) -> list[tuple[int, int]]:
    """Return the pairs of nodes that overlap."""
    places = drawing.places
    return [
        (a, b)
        for a, b in combinations(places, 2)
        if places[a].column == places[b].column and abs(places[a].height - places[b].height) < 1 - 1e-6
    ]


@given(graphs())
def test_every_arrow_leads_to_the_right_and_no_node_covers_another(graph: Graph) -> None:
    count, arrows = graph
    drawing = layout(range(count), arrows)
    assert set(drawing.places) == set(range(count))
    assert set(drawing.routes) == set(arrows)
    for (parent, child), route in drawing.routes.items():
        assert (route[0], route[-1]) == (drawing.places[parent], drawing.places[child])
        assert [after.column - before.column for before, after in pairwise(route)] == [1] * (len(route) - 1)
    assert overlaps(drawing) == []
    assert all(0.5 - 1e-6 <= place.height <= drawing.height - 0.5 + 1e-6 for place in drawing.places.values())
    assert max(place.column for place in drawing.places.values()) == drawing.width - 1


@given(graphs())
def test_a_node_stands_right_behind_the_last_of_its_parents(graph: Graph) -> None:
    count, arrows = graph
    places = layout(range(count), arrows).places
    for node in range(count):
        parents = [places[parent].column for parent, child in arrows if child == node]
        children = [places[child].column for parent, child in arrows if parent == node]
        if parents:
            assert places[node].column == max(parents) + 1
        else:
            assert places[node].column == (min(children) - 1 if children else 0)


@given(graphs(cyclic=True))
def test_a_circle_is_drawn_all_the_same(graph: Graph) -> None:
    count, arrows = graph
    drawing = layout(range(count), arrows)
    assert set(drawing.routes) == {(parent, child) for parent, child in arrows if parent != child}
    assert overlaps(drawing) == []


@given(graphs())
def test_the_same_workflow_looks_the_same(graph: Graph) -> None:
    count, arrows = graph
    assert layout(range(count), arrows) == layout(range(count), arrows)


def test_arrows_to_nodes_that_are_not_drawn_are_left_out() -> None:
    assert layout([1, 2], [(1, 2), (2, 3), (0, 1), (1, 1), (1, 2)]).routes.keys() == {(1, 2)}
    assert (layout([], []).width, layout([], []).height) == (0, 0)


def test_a_chain_is_a_straight_line_and_a_fan_is_centered() -> None:
    chain = layout(range(5), pairwise(range(5)))
    assert {place.height for place in chain.places.values()} == {0.5}
    fan = layout(range(5), [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]).places
    assert fan[0].height == fan[2].height == fan[4].height == 1.5


def test_a_long_arrow_does_not_run_through_the_nodes_between() -> None:
    drawing = layout("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    for bend in drawing.routes["a", "d"][1:-1]:
        [node] = [place for place in drawing.places.values() if place.column == bend.column]
        assert abs(node.height - bend.height) >= 0.5


def test_the_longest_arrows_have_no_bends_if_there_were_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BENDS", 2)
    drawing = layout(range(6), [*pairwise(range(6)), (0, 2), (0, 5), (1, 5)])
    assert {ends: len(route) for ends, route in drawing.routes.items() if ends[1] - ends[0] > 1} == {
        (0, 2): 3,
        (0, 5): 2,
        (1, 5): 2,
    }


@given(st.lists(st.sampled_from(list(product("abcd", "wxyz"))), max_size=12, unique=True))
def test_crossings_are_counted_right(arrows: list[tuple[str, str]]) -> None:
    left, right = dict(zip("abcd", range(4), strict=True)), dict(zip("wxyz", range(10, 14), strict=True))
    pairs = [(left[a], right[b]) for a, b in arrows]
    after = {node: [end for start, end in pairs if start == node] for node in range(4)}
    crossing = [1 for (a, b), (c, d) in combinations(pairs, 2) if (a - c) * (b - d) < 0]
    assert crossings([range(4), range(10, 14)], after) == len(crossing)


def test_sweeps_undo_crossings() -> None:
    before = {10: [3], 11: [2], 12: [1], 13: [0]}
    after = {0: [13], 1: [12], 2: [11], 3: [10]}
    columns = [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert crossings(columns, after) == 6
    assert crossings(ordered(columns, before, after), after) == 0


@given(st.lists(st.tuples(st.integers(-20, 20), st.sampled_from([1.0, 3.0])), min_size=1, max_size=8))
def test_heights_are_the_nearest_without_overlaps(nodes: list[tuple[int, float]]) -> None:
    wanted = [float(want) for want, _weight in nodes]
    weights = [weight for _want, weight in nodes]
    found = nearest(wanted, weights, [1.0] * len(nodes))
    assert all(lower - upper >= 1 - 1e-9 for upper, lower in pairwise(found))

    def cost(heights: list[float]) -> float:
        return sum(w * (h - x) ** 2 for w, h, x in zip(weights, heights, wanted, strict=True))

    for place, step in product(range(len(nodes)), (-0.01, 0.01)):
        # No node, and no node with all those above or below it, would be better off elsewhere.
        moved = [h + step if (n >= place) == (step > 0) else h for n, h in enumerate(found)]
        assert cost(moved) >= cost(found) - 1e-9
