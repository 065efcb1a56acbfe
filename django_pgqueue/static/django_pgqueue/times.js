// Shows the times of a page in the time zone of the browser, with the exact instant as the title.
//
// The server has written them in its own zone (see admin/display.py), and without this script they stay so. They also
// stay if the page keeps its zone: data-pgqueue-kept. Parts that live.js shows anew are changed in the same way.
"use strict";
{
    const padded = (number, digits = 2) => String(number).padStart(digits, "0");

    const day = (moment) => [padded(moment.getFullYear(), 4), padded(moment.getMonth() + 1), padded(moment.getDate())].join("-");

    const clock = (moment) => [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map((each) => padded(each)).join(":");

    const precise = (moment) => `${clock(moment)}.${padded(moment.getMilliseconds(), 3)}`;

    const offset = (moment) => {
        const minutes = -Math.round(moment.getTimezoneOffset());
        const size = Math.abs(minutes);
        return `${minutes < 0 ? "-" : "+"}${padded(Math.floor(size / 60))}:${padded(size % 60)}`;
    };

    // Without the date, if it is that of the time before.
    const text = (moment, {pgqueueShows, pgqueueAfter}) => {
        if (pgqueueShows === "clock") {
            return precise(moment);
        }
        const isSameDay = pgqueueAfter && day(new Date(pgqueueAfter)) === day(moment);
        return isSameDay ? clock(moment) : `${day(moment)} ${clock(moment)}`;
    };

    const HAS_OFFSET = /(Z|[+-]\d\d:\d\d)$/; // a project without time zones has times without one

    const showTime = (element, zone) => {
        const moment = new Date(element.dateTime);
        if (!HAS_OFFSET.test(element.dateTime) || Number.isNaN(moment.getTime())) {
            return;
        }
        element.title = `${day(moment)}T${precise(moment)}${offset(moment)} ${zone}`;
        if (element.dataset.pgqueueShows !== "words") {
            element.textContent = text(moment, element.dataset);
        }
    };

    const show = (root, zone) => {
        const all = (selector) => [...(root.matches?.(selector) ? [root] : []), ...root.querySelectorAll(selector)];
        all("time.pgqueue-time").forEach((element) => showTime(element, zone));
        all("[data-pgqueue-zone-name]").forEach((element) => { element.textContent = zone; });
        all("[data-pgqueue-elsewhere]").forEach((element) => { element.hidden = false; });
        all("figure[data-zone]").forEach((figure) => { figure.dataset.zone = zone; }); // for charts.js
    };

    const start = () => {
        const page = document.querySelector("[data-pgqueue-zone]");
        const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
        if (!page || !zone || "pgqueueKept" in page.dataset || zone === page.dataset.pgqueueZone) {
            return;
        }
        show(document, zone);
        document.addEventListener("pgqueue:shown", (event) => show(event.detail, zone));
    };

    if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", start);
    } else {
        start();
    }
}
