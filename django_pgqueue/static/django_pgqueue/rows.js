// The boxes of a list whose rows live.js shows anew. Django's script for actions knows only the boxes that were there
// when it was started. So it is started again for the new ones, as soon as a user uses one of them: not before, because
// it keeps the rows that it knows in memory.
"use strict";
{
    const BOXES = "#result_list input.action-select";
    let isOutdated = false;

    const update = (event) => {
        if (isOutdated && event.target.matches?.(`${BOXES}, #action-toggle`)) {
            isOutdated = false;
            window.Actions(document.querySelectorAll(BOXES));
        }
    };

    document.addEventListener("pgqueue:shown", (event) => {
        isOutdated ||= event.detail.matches("#pgqueue-rows");
    });
    // On the way down, so that Django's script hears of this event, too.
    for (const kind of ["click", "change"]) {
        document.addEventListener(kind, update, true);
    }
}
