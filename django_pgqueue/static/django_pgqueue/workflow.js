// Draws the workflow of a page as SVG, from the JSON in it (see admin/graph/pages.py). dagre finds the places.
//
// A part that live.js has read again is drawn again, with the places of before if it has the same nodes and arrows.
// Without this script, the table below the drawing stays open.
"use strict";
{
    const [WIDTH, HEIGHT, PADDING] = [192, 48, 12];
    let [known, layout] = ["", null];

    const make = (name, attributes, ...children) => {
        const element = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const [key, value] of Object.entries(attributes)) {
            element.setAttribute(key, value);
        }
        element.append(...children);
        return element;
    };

    const place = ({nodes, arrows}) => {
        const shape = JSON.stringify([nodes.map((node) => node.id), arrows.map(([start, end]) => [start, end])]);
        if (shape !== known) {
            const graph = new dagre.graphlib.Graph().setDefaultEdgeLabel(() => ({}));
            // The other ways to find columns take up to eight seconds for the largest drawings.
            graph.setGraph({rankdir: "LR", nodesep: 16, edgesep: 8, ranksep: 56, marginx: 8, marginy: 8, ranker: "tight-tree"});
            nodes.forEach((node) => graph.setNode(node.id, {width: WIDTH, height: HEIGHT}));
            arrows.forEach(([start, end]) => graph.setEdge(start, end));
            dagre.layout(graph);
            [known, layout] = [shape, graph];
        }
        return layout;
    };

    // From the side of one box through the bends to the side of the other, level where it passes a column.
    const way = (graph, start, end) => {
        const [from, to] = [graph.node(start), graph.node(end)];
        const side = from.x < to.x ? WIDTH / 2 : -WIDTH / 2;
        const points = graph.edge(start, end).points;
        const bends = points.length > 3 ? points.slice(1, -1) : []; // one halfway to the next column is not needed
        const [first, ...rest] = [{x: from.x + side, y: from.y}, ...bends, {x: to.x - side, y: to.y}];
        let [path, last] = [`M${first.x} ${first.y}`, first];
        for (const point of rest) {
            const middle = (last.x + point.x) / 2;
            path += `C${middle} ${last.y} ${middle} ${point.y} ${point.x} ${point.y}`;
            last = point;
        }
        return path;
    };

    const bars = (parts) => {
        const all = parts.reduce((sum, [, count]) => sum + count, 0);
        let x = PADDING;
        return parts.map(([state, count]) => {
            const width = (WIDTH - 2 * PADDING) * count / all;
            x += width;
            return make("rect", {class: `pgqueue-strip pgqueue-strip-${state}`, x: x - width, y: HEIGHT - 6, width, height: 3});
        });
    };

    const box = (node, {x, y}) => {
        const kinds = [node.kind, node.status, node.isHere ? "here" : ""].filter(Boolean);
        const attributes = {id: `pgqueue-node-${node.id}`, class: ["pgqueue-node", ...kinds.map((each) => `pgqueue-node-${each}`)].join(" ")};
        if (node.isHere) {
            Object.assign(attributes, {"aria-current": "true", "data-pgqueue-center": ""});
        }
        const shape = make(node.url ? "a" : "g", node.url ? {...attributes, href: node.url} : attributes,
            make("title", {}, node.title),
            make("rect", {class: "pgqueue-box", width: WIDTH, height: HEIGHT, rx: node.kind === "batch" ? 16 : 4}),
            make("g", {"clip-path": "url(#pgqueue-clip)"},
                make("text", {class: "pgqueue-box-name", x: PADDING, y: 20}, node.label),
                make("text", {class: "pgqueue-box-state", x: PADDING, y: 37}, node.text)),
            ...bars(node.bar));
        return make("g", {transform: `translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}, shape);
    };

    const drawn = (workflow) => {
        const graph = place(workflow);
        const {width, height} = graph.graph();
        const tip = make("marker", {id: "pgqueue-tip", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto"},
            make("path", {class: "pgqueue-tip", d: "M0 0L8 4L0 8z"}));
        const clip = make("clipPath", {id: "pgqueue-clip"}, make("rect", {width: WIDTH - PADDING - 4, height: HEIGHT}));
        const arrows = workflow.arrows.map(([start, end, kind, isFailed]) => make("path", {
            class: `pgqueue-arrow pgqueue-arrow-${kind}${isFailed ? " pgqueue-arrow-failed" : ""}`,
            d: way(graph, start, end), "marker-end": "url(#pgqueue-tip)",
        }));
        return make("svg", {id: "pgqueue-drawing", width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
            "aria-labelledby": "pgqueue-drawing-title", "aria-describedby": "pgqueue-drawing-summary"},
        make("title", {id: "pgqueue-drawing-title"}, workflow.title),
        make("desc", {id: "pgqueue-drawing-summary"}, workflow.summary),
        make("defs", {}, tip, clip), ...arrows, ...workflow.nodes.map((node) => box(node, graph.node(node.id))));
    };

    const draw = (part) => {
        const data = part.querySelector("#pgqueue-workflow-data");
        if (data) {
            const place = part.querySelector("#pgqueue-drawing-box");
            place.replaceChildren(drawn(JSON.parse(data.textContent)));
            place.hidden = false;
            part.querySelector("#pgqueue-workflow-words").open = false;
        }
    };

    // A deferred script: the page is there, and live.js has not yet scrolled to where the reader is.
    draw(document);
    document.addEventListener("pgqueue:shown", (event) => draw(event.detail));
}
