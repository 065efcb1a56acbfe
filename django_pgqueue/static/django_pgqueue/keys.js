// The keys of the pages of the queue. All text is in the page: the dialog #pgqueue-keys, which "?" shows, and the links
// that "g" and a letter follow (data-pgqueue-go="j"). Keys do nothing while a user types, together with Ctrl, Alt
// or Meta, while a dialog is open, and if they were turned off in the dialog (in this browser).
"use strict";
{
    const WAIT = 1500;  // milliseconds from "g" to the letter
    const OFF = "pgqueue-keys-off";
    const TEXT = "textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=submit])";
    const BOXES = ".pgqueue-nav, .pgqueue-scroll, .results";
    const dialog = document.getElementById("pgqueue-keys");
    let leader = 0;

    // Some browsers refuse to store anything. Then the keys are on.
    const stored = () => {
        try {
            return localStorage.getItem(OFF) !== null;
        } catch {
            return false;
        }
    };
    let off = stored();

    const turn = (on) => {
        off = !on;
        try {
            if (on) {
                localStorage.removeItem(OFF);
            } else {
                localStorage.setItem(OFF, "1");
            }
        } catch {
            // It holds until the page is left.
        }
    };

    const rows = () => [...document.querySelectorAll("#result_list tbody tr, [data-pgqueue-rows] tbody tr")]
        .filter((row) => link(row));
    const link = (row) => row.querySelector("th a[href], td a[href]");
    const here = () => document.activeElement.closest("#result_list tbody tr, [data-pgqueue-rows] tbody tr");

    const move = (step) => {
        const all = rows();
        const place = all.indexOf(here());
        const next = all[place < 0 ? (step > 0 ? 0 : all.length - 1) : place + step];
        if (next) {
            link(next).focus();
            next.scrollIntoView({ block: "nearest" });
        }
    };

    const search = () => {
        const field = document.getElementById("searchbar") || document.querySelector("#content input[type=search]");
        if (field) {
            field.focus();
            field.select();
        }
        return Boolean(field);
    };

    const select = () => {
        const box = here()?.querySelector("input.action-select");
        box?.click();  // the scripts of the admin count what is selected
        return Boolean(box);
    };

    const open = () => {
        const row = here();
        if (row) {
            link(row).click();
        }
        return Boolean(row);
    };

    const follow = (letter) => {
        const target = document.querySelector(`a[data-pgqueue-go="${CSS.escape(letter)}"]`);
        target?.click();
        return Boolean(target);
    };

    const show = () => {
        dialog.showModal();
        return true;
    };

    const keys = new Map([
        ["/", search], ["x", select], ["o", open], ["?", show],
        ["j", () => (move(1), true)], ["k", () => (move(-1), true)],
        ["g", () => (leader = performance.now(), true)],
    ]);

    const press = (event) => {
        const busy = off || event.defaultPrevented || event.isComposing || event.ctrlKey || event.altKey
            || event.metaKey || event.target.closest(TEXT) || event.target.isContentEditable
            || document.querySelector("dialog[open]");
        if (busy) {
            leader = 0;
            return;
        }
        const led = leader > 0 && performance.now() - leader < WAIT;
        leader = 0;
        const act = led ? () => follow(event.key) : keys.get(event.key);
        if (act && act()) {
            event.preventDefault();
        }
    };

    // Without this script, the link leads to the form around the list.
    document.querySelector("[data-pgqueue-skip]")?.addEventListener("click", (event) => {
        if (rows().length) {
            event.preventDefault();
            link(rows()[0]).focus();
        }
    });

    // A browser may leave what the Tab key reaches half outside of a box that scrolls.
    document.addEventListener("focusin", ({target}) => {
        if (target.matches(":focus-visible") && target.parentElement?.closest(BOXES)) {
            target.scrollIntoView({block: "nearest", inline: "nearest"});
        }
    });

    if (dialog) {
        const box = dialog.querySelector("[data-pgqueue-keys-on]");
        box.checked = !off;
        box.addEventListener("change", () => turn(box.checked));
        for (const button of document.querySelectorAll("[data-pgqueue-keys]")) {
            button.hidden = false;
            button.addEventListener("click", show);
        }
        document.addEventListener("keydown", press);
    }
}
