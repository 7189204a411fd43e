// SPDX-License-Identifier: Apache-2.0
// status.js - fills status.html with what an operator looks for, in this order: whether crustd is
// well, which volumes are stalled and why, which others need attention, which a resize would not
// reach, the sizes of all volumes, the latest resizes.
//
// Names come from anywhere, so everything from the API goes into the page as text, by element().
// Nothing here makes markup from text.
"use strict";

const MOST_VOLUMES = 200;
const MOST_RESIZES = 30;
const OPENED = 2; // In each list, the details of the first volumes are open.

// ---- elements ----

// Replaces what controls a terminal or reorders a line: the characters that crustd escapes in its log.
function clean(text) {
    return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

// A child is an element, a text, or null for nothing.
function element(name, attributes, ...children) {
    const made = document.createElement(name);

    for (const [key, value] of Object.entries(attributes))
        made.setAttribute(key, clean(value));
    made.append(...children.filter(child => child !== null)
        .map(child => child instanceof Node ? child : clean(child)));
    return made;
}

function show(...elements) {
    document.querySelector("main").append(...elements);
}

function sizeText(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = 0;

    for (; bytes >= 1024; bytes /= 1024)
        unit++;
    return `${Number(bytes.toPrecision(4))}\u00a0${units[unit]}`;
}

// The size is null or 0 if it is unknown.
function sizeElement(bytes) {
    return bytes ? element("span", {title: `${BigInt(bytes)} bytes`}, sizeText(bytes))
        : element("span", {class: "none"}, "\u2013");
}

// "120 ms", "3.4 s", "5 min", "2 h", "3 d"
function spanText(milliseconds) {
    const scales = [[24 * 3600 * 1000, "d"], [3600 * 1000, "h"], [60 * 1000, "min"]];
    const scale = scales.find(([unit]) => milliseconds >= 2 * unit);

    if (scale)
        return `${Math.floor(milliseconds / scale[0])}\u00a0${scale[1]}`;
    if (milliseconds < 1000)
        return `${milliseconds}\u00a0ms`;
    return `${(milliseconds / 1000).toFixed(milliseconds < 10000 ? 1 : 0)}\u00a0s`;
}

// The time as the API has it, "2026-01-02T03:04:05.678Z".
function timeElement(text) {
    return element("time", {datetime: text}, `${text.slice(0, 10)} `, element("b", {}, text.slice(11, 19)));
}

// ---- states ----

// The volume is not stalled, but blocked and only observed, has shrunk, or its hypervisor does not
// report its size.
function needsAttention({state, reason}) {
    return state === "blocked" || state === "shrunk" ||
        (state === "unknown" && reason !== "none" && reason !== "policy");
}

function isResizing({state, reason}) {
    return (state === "host_grown" || state === "block_grown") && reason !== "policy";
}

function isAbnormal(volume) {
    return volume.condition === "abnormal";
}

function kindOf(row, stalled) {
    if (stalled || row.state === "shrunk")
        return "bad";
    if (row.state === "in_sync")
        return "good";
    if (needsAttention(row))
        return "warn";
    return isResizing(row) || row.state === "unknown" ? "busy" : "idle";
}

// "block_grown" becomes "block grown".
function words(name) {
    return name.replaceAll("_", " ");
}

// The title has the names as they are, which can be searched for.
function stateElements(row, stalled) {
    const title = `${row.state}/${row.reason}`;

    return [element("span", {class: `state ${kindOf(row, stalled)}`, title}, words(row.state)),
        row.reason === "none" ? null : " ",
        row.reason === "none" ? null : element("span", {class: "reason"}, words(row.reason))];
}

function nameOf(row) {
    return row.pv ?? row.target_path ?? row.key ?? `volume ${row.volume_id}`;
}

// ---- counts ----

function tileOf(volume) {
    if (volume.stalled)
        return "stalled";
    if (isAbnormal(volume) || needsAttention(volume))
        return "attention";
    if (volume.state === "in_sync")
        return "in_sync";
    return isResizing(volume) ? "resizing" : "idle";
}

function showTiles(volumes) {
    const count = {stalled: 0, attention: 0, resizing: 0, in_sync: 0, idle: 0};
    const tile = (kind, number, name) =>
        element("li", {class: number ? kind : "zero"}, element("b", {}, number), ` ${name}`);

    for (const volume of volumes)
        count[tileOf(volume)]++;
    show(element("ul", {class: "tiles"},
        tile("all", volumes.length, "volumes"),
        tile("bad", count.stalled, "stalled"),
        tile("warn", count.attention, "to look at"),
        tile("busy", count.resizing, "growing"),
        tile("good", count.in_sync, "in sync"),
        tile("idle", count.idle, "not in use or only observed")));
}

function showHealth(kind, name, text) {
    show(element("p", {class: `health ${kind}`}, element("b", {}, name), ` ${text}`));
}

function showStatus(status, now) {
    const {errors, warnings, worst} = status.doctor;

    document.title = `${clean(status.host)} \u00b7 crustd`;
    document.querySelector("header").append(element("h1", {}, status.host),
        element("p", {}, `crustd ${status.version} \u00b7 `, timeElement(now.toISOString()), " UTC"));
    if (status.degraded)
        showHealth("bad", "degraded", status.problem ?? "");
    else if (!status.synced)
        showHealth("busy", "starting", "the first scan is not done yet");
    else
        showHealth("good", "ready", "crustd runs, and sees this node");
    if (errors || warnings)
        show(element("p", {class: errors ? "health bad" : "health busy"},
            element("a", {href: "/v1/doctor"}, "doctor"), " ",
            element("b", {}, `errors ${errors}, warnings ${warnings}`), ` ${worst ?? ""}`));
}

// ---- volumes that need attention ----

function errorElement(text) {
    return text ? element("p", {class: "error"}, text) : null;
}

// What the API explains about the volume. In the list of volumes that a resize would not reach, the
// obstacle is explained instead of the state.
function explanationElements(volume, explained, isObstacle) {
    const {resize, remedies, state_meaning, reason_meaning, resizable_meaning} = explained;
    const meaning = isObstacle ? resizable_meaning : reason_meaning ?? state_meaning;
    const failure = resize && !resize.finished_at ? resize.error : null;

    return [meaning ? element("p", {}, meaning) : null,
        remedies.length ? element("ul", {}, ...remedies.map(remedy => element("li", {}, remedy))) : null,
        errorElement(failure ?? volume.problem),
        isAbnormal(volume) ? errorElement("The guest says that its file system is abnormal: " +
            (volume.condition_message ?? "")) : null].filter(one => one !== null);
}

async function explain(volume, isObstacle, summary) {
    try {
        const {answer} = await ask(`/v1/volumes/${volume.volume_id}/explain`);

        summary.after(...explanationElements(volume, answer, isObstacle));
    } catch (failure) {
        summary.after(errorElement(failure.message));
    }
}

function detailsElement(volume, now, isObstacle, isOpen) {
    const since = Math.max(now - Date.parse(volume.state_since), 0);
    const wait = volume.next_attempt_at ? Date.parse(volume.next_attempt_at) - now : 0;
    const summary = element("summary", {}, element("b", {}, nameOf(volume)), " ",
        ...stateElements(volume, volume.stalled),
        element("small", {}, ` for ${spanText(since)}`,
            wait > 0 ? `, tried again in ${spanText(wait)}` : null),
        isObstacle ? " " : null,
        isObstacle ? element("span", {class: "reason"}, words(volume.resizable_reason)) : null);
    const details = element("details", {}, summary,
        element("p", {}, element("code", {}, `crustctl explain ${volume.volume_id}`)));

    // A browser also sends this event for details that are open from the start.
    details.addEventListener("toggle", () => explain(volume, isObstacle, summary), {once: true});
    details.open = isOpen;
    return details;
}

function showDetails(title, volumes, now, isObstacle) {
    if (volumes.length)
        show(element("h2", {}, title), element("section", {},
            ...volumes.map((volume, i) => detailsElement(volume, now, isObstacle, i < OPENED))));
}

// ---- all volumes ----

function urgencyOf(volume, notResizable) {
    const harmless = ["none", "unverified", "policy", "not_a_block_device"];

    if (volume.stalled)
        return 0;
    if (volume.state === "blocked" || volume.state === "shrunk" || isAbnormal(volume))
        return 1;
    if (notResizable.has(volume.volume_id) || !harmless.includes(volume.reason))
        return 2;
    if (["host_grown", "block_grown", "unknown"].includes(volume.state))
        return 3;
    return volume.state === "in_sync" ? 4 : 5;
}

function volumeRow(volume, hypervisors) {
    const {device_bytes, hypervisor_bytes, guest_bytes} = volume;
    const differs = hypervisor_bytes && device_bytes && hypervisor_bytes !== device_bytes;
    const place = volume.pod_name ? `${volume.pod_namespace}/${volume.pod_name}` : volume.device ?? "";
    const pod = volume.kind === "block_claim" ? `${place}, raw block claim` : place;
    const prefix = volume.pod_namespace ? `${volume.pod_namespace}/` : "";
    const cell = (label, bytes, kind) =>
        element("td", {class: kind, "data-label": label}, sizeElement(bytes));

    return element("tr", {},
        element("th", {scope: "row", title: volume.target_path ?? ""}, nameOf(volume),
            element("small", {}, volume.claim ? `${pod}, claim ${prefix}${volume.claim}` : pod)),
        element("td", {class: "states"}, ...stateElements(volume, volume.stalled)),
        cell("Host", device_bytes, "size"),
        cell("Hypervisor", hypervisor_bytes, differs ? "size differs" : "size"),
        cell("Guest", guest_bytes, "size"),
        element("td", {class: "vmm"}, hypervisors.get(volume.sandbox_id) ?? ""));
}

function showVolumes(volumes, count, hypervisors) {
    const head = (name, attributes = {}) => element("th", {scope: "col", ...attributes}, name);
    const size = {class: "size"};

    show(element("h2", {}, "Volumes"));
    if (count === 0) {
        show(element("p", {class: "none"}, "No volume is staged on this node."));
        return;
    }
    show(element("table", {},
        element("thead", {}, element("tr", {}, head("Volume"), head("State"), head("Host", size),
            head("Hypervisor", size), head("Guest", size), head("VM"))),
        element("tbody", {}, ...volumes.map(volume => volumeRow(volume, hypervisors)))));
    if (count > volumes.length)
        show(element("p", {class: "none"}, `and ${count - volumes.length} more: `,
            element("code", {}, "crustctl volumes")));
    show(element("p", {class: "note"}, "The guest's size is what its file system offers: less than the " +
        "device's, by what it keeps for itself. Of a raw block claim it shows only if the pod wants crustd to grow its file system."));
}

// ---- resizes ----

function stepElement(name, from, to) {
    const duration = from && to ? spanText(Math.max(Date.parse(to) - Date.parse(from), 0)) : null;

    return duration ? element("span", {class: "step"}, `${name} +${duration}`) : null;
}

function resizeElement(resize, volume) {
    const stalled = !resize.finished_at && volume?.stalled;

    return element("li", {class: kindOf(resize, stalled)}, timeElement(resize.detected_at),
        element("div", {}, element("b", {}, nameOf({key: volume?.key, ...resize})), " ",
            element("span", {class: "sizes"}, sizeElement(resize.from_bytes), " \u2192 ",
                sizeElement(resize.to_bytes)),
            " ", ...stateElements(resize, stalled),
            element("p", {}, stepElement("hypervisor", resize.detected_at, resize.hypervisor_at), " ",
                stepElement("guest", resize.hypervisor_at, resize.guest_at), " ",
                resize.finished_at ? null : element("span", {class: "step"}, "not done yet")),
            errorElement(resize.error)));
}

function showResizes(resizes, volumes) {
    const byId = new Map(volumes.map(volume => [volume.volume_id, volume]));

    show(element("h2", {}, "Recent resizes"), resizes.length
        ? element("ol", {class: "timeline"},
            ...resizes.map(resize => resizeElement(resize, byId.get(resize.volume_id))))
        : element("p", {class: "none"}, "No device has grown so far."));
}

// ---- the page ----

async function ask(path) {
    const response = await fetch(path);
    const answer = await response.json();

    if (!response.ok)
        throw new Error(answer.message);
    return {answer, now: new Date(response.headers.get("Date"))};
}

// The node's clock tells how long something lasts, because the browser's may differ.
async function showAll() {
    const {answer: status, now} = await ask("/v1/status");

    showStatus(status, now);
    const paths = ["/v1/volumes?live=1", "/v1/volumes?not_resizable=1", "/v1/sandboxes?live=1",
        `/v1/resizes?last=${MOST_RESIZES}`];
    const answers = [];
    // One after another: answers that wait to be read share crustd's memory for them.
    for (const path of paths)
        answers.push((await ask(path)).answer);
    const [rows, obstructed, sandboxes, resizes] = answers;
    const notResizable = new Set(obstructed.map(volume => volume.volume_id));
    const all = rows.filter(row => !row.removed_at);
    const urgency = new Map(all.map(volume => [volume, urgencyOf(volume, notResizable)]));
    // The sort is stable, and the API orders by volume_id.
    const volumes = [...all].sort((a, b) => urgency.get(a) - urgency.get(b)).slice(0, MOST_VOLUMES);
    const calm = volumes.filter(volume => tileOf(volume) !== "stalled" && tileOf(volume) !== "attention");

    showTiles(all);
    showDetails("Stalled", volumes.filter(volume => tileOf(volume) === "stalled"), now, false);
    showDetails("To look at", volumes.filter(volume => tileOf(volume) === "attention"), now, false);
    showDetails("Would not grow", calm.filter(volume => notResizable.has(volume.volume_id)), now, true);
    showVolumes(volumes, all.length, new Map(sandboxes.map(one => [one.sandbox_id, one.hypervisor])));
    showResizes(resizes.reverse(), all);
}

showAll().catch(failure => showHealth("bad", "error", failure.message));
