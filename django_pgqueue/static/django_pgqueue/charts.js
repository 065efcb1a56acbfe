// Draws the charts of a page with uPlot, from the tables in them (see admin/charts.py).
//
// The colors come from the heads of the columns, which the style sheets take from the theme of the admin. A chart
// is drawn anew when the theme changes, when its width changes, and when live.js has shown new figures.
"use strict";
{
    const HEIGHT = 220;
    const DASHES = {solid: [], dashed: [6, 4], dotted: [2, 3]};
    const TIMES = new Map([[0.001, "1 ms"], [0.01, "10 ms"], [0.1, "100 ms"], [1, "1 s"], [10, "10 s"], [60, "1 min"],
        [600, "10 min"], [3600, "1 h"], [36000, "10 h"]]); // the lines of a scale of seconds
    const plots = new Map(); // by figure
    const hidden = new Map(); // by id of the figure: the labels of the series that the reader has switched off

    const number = (cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value));

    // The table has the newest row at the top.
    const read = (figure) => {
        const heads = [...figure.querySelectorAll("thead th")].slice(1);
        const rows = [...figure.querySelectorAll("tbody tr")].reverse().map((row) => [...row.cells]);
        const columns = heads.map((_, place) => rows.map((cells) => number(cells[place + 1])));
        const texts = heads.map((_, place) => rows.map((cells) => cells[place + 1].textContent));
        return {heads, columns, texts, times: rows.map(([time]) => number(time)),
            moments: rows.map(([time]) => time.textContent), marks: rows.map(([time]) => time.dataset.mark)};
    };

    const isShown = (figure, head) => !hidden.get(figure.id)?.has(head.textContent);

    // What the reader has switched off does not count.
    const sums = (figure, {heads, columns}) => heads.map((_, last) => columns[last].map((_, row) =>
        columns.slice(0, last + 1).reduce(
            (sum, column, place) => sum + (isShown(figure, heads[place]) ? column[row] ?? 0 : 0), 0)));

    const looks = (element) => {
        const style = getComputedStyle(element);
        return {color: style.color, font: `12px ${style.fontFamily}`};
    };

    const axis = (figure, more) => {
        const grid = figure.querySelector("details");
        return {
            stroke: looks(figure.querySelector("summary")).color, font: looks(figure).font,
            grid: {stroke: getComputedStyle(grid).borderTopColor, width: 1},
            ticks: {stroke: getComputedStyle(grid).borderTopColor, width: 1, size: 4}, ...more,
        };
    };

    // A point between two gaps would be invisible.
    const lonely = (plot, index) => {
        const values = plot.data[index];
        return values.map((value, place) => (
            value !== null && (values[place - 1] ?? null) === null && (values[place + 1] ?? null) === null ? place : null
        )).filter((place) => place !== null);
    };

    const seriesOf = (figure, table, isBars) => table.heads.map((head, place) => {
        const {color} = looks(head);
        return {
            label: head.textContent, stroke: color, width: isBars ? 0 : 1.75, fill: isBars ? color : undefined,
            dash: DASHES[head.dataset.stroke], paths: isBars ? uPlot.paths.bars({size: [0.8, 40], gap: 0}) : undefined,
            points: isBars ? {show: false} : {filter: (plot, index) => lonely(plot, index), size: 4, fill: color},
            show: isShown(figure, head),
            value: (_plot, _value, _index, row) => (row === null ? "" : table.texts[place][row]),
        };
    });

    // Django also knows zones without a name, such as UTC+02:00, which some browsers know as +02:00.
    const knownZone = (name) => {
        try {
            const timeZone = name.replace(/^UTC(?=[+-])/, "");
            return new Intl.DateTimeFormat("en", {timeZone}).resolvedOptions().timeZone;
        } catch {
            return undefined;
        }
    };

    const options = (figure, table, width) => {
        const isBars = figure.dataset.pgqueueChart === "bars";
        const isSeconds = figure.dataset.unit === "seconds";
        const edge = isBars ? (table.times[1] - table.times[0]) / 2 || 30 : 0; // half a bar
        const parts = seriesOf(figure, table, isBars);
        const language = document.documentElement.lang || undefined;
        const zone = knownZone(figure.dataset.zone);
        const short = new Intl.NumberFormat(language, {notation: "compact", maximumFractionDigits: 1});
        return {
            width, height: HEIGHT, tzDate: (seconds) => (
                zone ? uPlot.tzDate(new Date(seconds * 1000), zone) : new Date(seconds * 1000)), cursor: {y: false, drag: {x: false, y: false}},
            legend: {markers: { // a piece of the line; the style sheet leaves one border
                width: 3, stroke: (plot, place) => plot.series[place].stroke(plot, place),
                dash: (_plot, place) => table.heads[place - 1].dataset.stroke,
            }},
            scales: {
                x: {range: (_plot, low, high) => [low - edge, high + edge]},
                y: isSeconds ? {distr: 3, log: 10} : {range: (_plot, _low, high) => [0, high > 0 ? high * 1.05 : 1]},
            },
            axes: [
                axis(figure, {size: 32, values: times(language, zone)}),
                axis(figure, isSeconds
                    ? {size: 58, splits: (_plot, _axis, low, high) => [...TIMES.keys()].filter((each) =>
                        low <= each && each <= high), values: (_plot, ticks) => ticks.map((tick) => TIMES.get(tick)),
                        filter: (_plot, ticks) => ticks} // uPlot would leave out what is no power of ten
                    : {size: 58, values: (_plot, ticks) => ticks.map((tick) => short.format(tick))}),
            ],
            // Stacked bars are drawn from the highest sum to the lowest, each over the one before.
            series: [
                {value: (_plot, _value, _index, row) => (row === null ? "" : table.moments[row])},
                ...(isBars ? parts.reverse() : parts),
            ],
            hooks: {draw: [marked(figure, table)], setLegend: [newest], setSeries: [(plot) => {
                const off = plot.series.slice(1).filter((series) => !series.show).map((series) => series.label);
                const before = hidden.get(figure.id)?.size ?? 0;
                hidden.set(figure.id, new Set(off));
                if (isBars && before !== off.length) {
                    queueMicrotask(() => draw(figure));
                }
            }]},
        };
    };

    // A line at each deploy, with its version at the top.
    const marked = (figure, table) => ({ctx, bbox, valToPos}) => {
        const {color, font} = looks(figure.querySelector("summary"));
        ctx.save();
        Object.assign(ctx, {strokeStyle: color, fillStyle: color, lineWidth: devicePixelRatio, textBaseline: "top",
            font: font.replace("12px", `${11 * devicePixelRatio}px`)});
        ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
        table.times.forEach((time, row) => {
            if (table.marks[row]) {
                const x = Math.round(valToPos(time, "x", true));
                const isRight = x > bbox.left + bbox.width * 0.8;
                ctx.beginPath();
                ctx.moveTo(x, bbox.top);
                ctx.lineTo(x, bbox.top + bbox.height);
                ctx.stroke();
                ctx.textAlign = isRight ? "right" : "left";
                ctx.fillText(table.marks[row], x + (isRight ? -4 : 4) * devicePixelRatio, bbox.top);
            }
        });
        ctx.restore();
    };

    // Without a cursor, the legend has the newest figures. In the minute that has just begun, there may be none yet.
    const newest = (plot) => {
        if ((plot.legend.idx ?? null) === null && plot.data[0].length) {
            const last = Math.max(...plot.data.slice(1).map((values) => values.findLastIndex((value) => value)));
            plot.setLegend({idx: last < 0 ? plot.data[0].length - 1 : last}, false);
        }
    };

    // The hour for up to two days, else the day.
    const times = (language, timeZone) => (_plot, ticks, _axis, _space, step) => {
        const format = new Intl.DateTimeFormat(language, step < 86400
            ? {hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone} : {month: "short", day: "numeric", timeZone});
        return ticks.map((tick) => format.format(tick * 1000));
    };

    const draw = (figure) => {
        plots.get(figure)?.destroy();
        const table = read(figure);
        const box = figure.querySelector(".pgqueue-plot");
        if (!table.times.length || !box.clientWidth) {
            return;
        }
        const isBars = figure.dataset.pgqueueChart === "bars";
        const columns = isBars ? sums(figure, table).reverse() : table.columns;
        const plot = new uPlot(options(figure, table, box.clientWidth), [table.times, ...columns], box);
        plots.set(figure, plot);
        newest(plot);
    };

    const resized = new ResizeObserver((entries) => {
        for (const {target, contentRect} of entries) {
            const figure = target.closest("figure");
            const plot = plots.get(figure);
            if (!plot) {
                draw(figure);
            } else if (Math.round(contentRect.width) !== plot.width) {
                plot.setSize({width: Math.round(contentRect.width), height: HEIGHT});
            }
        }
    });

    const prepare = (root) => {
        for (const figure of root.querySelectorAll("figure[data-pgqueue-chart]")) {
            const details = figure.querySelector("details");
            if (details && !figure.querySelector(".pgqueue-plot")) {
                const box = document.createElement("div");
                box.className = "pgqueue-plot";
                box.setAttribute("aria-hidden", "true"); // the table has the same figures
                details.before(box);
                resized.observe(box);
            }
        }
        for (const figure of [...plots.keys()].filter((each) => !each.isConnected)) {
            plots.get(figure).destroy();
            plots.delete(figure);
        }
    };

    const drawAll = () => [...plots.keys()].forEach(draw);

    const start = () => {
        prepare(document);
        document.addEventListener("pgqueue:shown", (event) => prepare(event.detail));
        new MutationObserver(drawAll).observe(document.documentElement, {attributeFilter: ["data-theme"]});
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    };

    if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", start);
    } else {
        start();
    }
}
