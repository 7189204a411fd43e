/* SPDX-License-Identifier: Apache-2.0 */
/* status_page.c - what an operator looks for, in this order: whether crustd is well, what is
 * stalled and why, what else needs attention, what could not be resized, the size of each volume,
 * the latest resizes.
 *
 * The page is complete except for its style sheet. It has no scripts, forms or inline styles, and
 * its Content-Security-Policy says so. Every name on it is untrusted and goes through html_text().
 */
#include "api/status_page.h"

#include <string.h>
#include <unistd.h>

#include "api/html.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "model/reason.h"
#include "store/overview.h"

enum { OPENED = 2 }; /* the stalled volumes whose details are open */

struct page {
    struct buffer *html;
    int64_t now_ms;
    uint64_t volumes, stalled, attention, resizing, in_sync, idle; /* counted in SQL */
    unsigned rows;                                                 /* of the present list */
};

/* ---- the counts ---- */

/* For a volume that is not stalled: it is blocked and only observed, has shrunk, or its hypervisor
 * does not report its size. */
static bool needs_attention(enum volume_state state, enum volume_reason reason)
{
    return state == STATE_BLOCKED || state == STATE_SHRUNK ||
           (state == STATE_UNKNOWN && reason != REASON_NONE && reason != REASON_POLICY);
}

static bool is_resizing(enum volume_state state, enum volume_reason reason)
{
    return (state == STATE_HOST_GROWN || state == STATE_BLOCK_GROWN) && reason != REASON_POLICY;
}

/* The counter for this state, unless the volume is counted for something else. */
static uint64_t *tile_of(struct page *page, const char *state_text, const char *reason_text)
{
    const enum volume_state state = state_from_name(state_text);
    const enum volume_reason reason = reason_from_name(reason_text);

    if (needs_attention(state, reason))
        return &page->attention;
    if (state == STATE_IN_SYNC)
        return &page->in_sync;
    return is_resizing(state, reason) ? &page->resizing : &page->idle;
}

static int count_volumes(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                         uint64_t count)
{
    struct page *page = userdata;

    page->volumes += count;
    *tile_of(page, name[1], name[2]) += count;
    return 0;
}

/* Volumes that were already counted by their states are moved. */
static int count_stalled(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                         uint64_t count)
{
    struct page *page = userdata;

    *tile_of(page, name[0], name[1]) -= count;
    page->stalled += count;
    return 0;
}

static int count_abnormal(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                          uint64_t count)
{
    struct page *page = userdata;
    const bool is_stalled = strcmp(name[2], "1") == 0;

    if (is_stalled)
        return 0;
    *tile_of(page, name[0], name[1]) -= count;
    page->attention += count;
    return 0;
}

static int count_all(struct page *page, struct store_reader *reader, struct error *error)
{
    int r = store_group_volumes(reader, count_volumes, page, error);

    if (r == 0)
        r = store_group_stalled(reader, count_stalled, page, error);
    return r < 0 ? r : store_group_abnormal(reader, count_abnormal, page, error);
}

static void write_tile(struct buffer *html, const char *kind, uint64_t count, const char *name)
{
    html_raw(html, "<li class=\"");
    html_raw(html, count ? kind : "zero");
    html_raw(html, "\"><b>");
    html_number(html, count);
    html_raw(html, "</b> ");
    html_raw(html, name);
    html_raw(html, "</li>\n");
}

static void write_tiles(struct page *page)
{
    struct buffer *html = page->html;

    html_raw(html, "<ul class=tiles>\n");
    write_tile(html, "all", page->volumes, "volumes");
    write_tile(html, "bad", page->stalled, "stalled");
    write_tile(html, "warn", page->attention, "to look at");
    write_tile(html, "busy", page->resizing, "growing");
    write_tile(html, "good", page->in_sync, "in sync");
    write_tile(html, "idle", page->idle, "not in use or only observed");
    html_raw(html, "</ul>\n");
}

static void write_health(struct buffer *html, const struct reconciler_health *health,
                         const struct reconciler_findings *findings)
{
    if (health->degraded) {
        html_raw(html, "<p class=\"health bad\"><b>degraded</b> ");
        html_text(html, health->problem);
    } else if (!health->synced) {
        html_raw(html, "<p class=\"health busy\"><b>starting</b> the first scan is not done yet");
    } else {
        html_raw(html, "<p class=\"health good\"><b>ready</b> crustd runs, and sees this node");
    }
    html_raw(html, "</p>\n");
    if (findings->errors == 0 && findings->warnings == 0)
        return;
    html_raw(html, findings->errors ? "<p class=\"health bad\">" : "<p class=\"health busy\">");
    html_raw(html, "<a href=\"/v1/doctor\">doctor</a> <b>errors ");
    html_number(html, findings->errors);
    html_raw(html, ", warnings ");
    html_number(html, findings->warnings);
    html_raw(html, "</b> ");
    html_text(html, findings->worst);
    html_raw(html, "</p>\n");
}

static void write_head(struct page *page, struct reconciler *reconciler)
{
    struct buffer *html = page->html;
    struct reconciler_health health = {0};
    char host[256] = "";

    (void)gethostname(host, sizeof(host) - 1);
    reconciler_get_health(reconciler, &health);
    html_raw(html, "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n"
                   "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
                   "<meta name=color-scheme content=\"light dark\">\n<title>");
    html_text(html, host);
    html_raw(html, " \xc2\xb7 crustd</title>\n<link rel=stylesheet href=\"/status.css\">\n"
                   "<header><h1>");
    html_text(html, host);
    html_raw(html, "</h1><p>crustd " CRUST_VERSION " \xc2\xb7 ");
    html_time(html, page->now_ms);
    html_raw(html, " UTC</p></header>\n<main>\n");
    write_health(html, &health, reconciler_get_findings(reconciler));
}

/* ---- names of states ---- */

static const char *kind_of(const char *state_text, const char *reason_text, bool stalled)
{
    const enum volume_state state = state_from_name(state_text);
    const enum volume_reason reason = reason_from_name(reason_text);

    if (stalled || state == STATE_SHRUNK)
        return "bad";
    if (state == STATE_IN_SYNC)
        return "good";
    if (needs_attention(state, reason))
        return "warn";
    return is_resizing(state, reason) || state == STATE_UNKNOWN ? "busy" : "idle";
}

/* "block_grown" -> "block grown"; the title has the original, which can be searched for. */
static void write_words(struct buffer *html, const char *name)
{
    for (; *name; name++) {
        const char letter[] = {*name == '_' ? ' ' : *name, '\0'};

        html_text(html, letter);
    }
}

static void write_state(struct buffer *html, const char *state, const char *reason, bool stalled)
{
    html_raw(html, "<span class=\"state ");
    html_raw(html, kind_of(state, reason, stalled));
    html_raw(html, "\" title=\"");
    html_text(html, state);
    html_raw(html, "/");
    html_text(html, reason);
    html_raw(html, "\">");
    write_words(html, state);
    html_raw(html, "</span>");
    if (strcmp(reason, "none") == 0)
        return;
    html_raw(html, " <span class=reason>");
    write_words(html, reason);
    html_raw(html, "</span>");
}

/* ---- stalled volumes, and others that need attention ---- */

static const struct explanation *explain_line(const struct store_volume_line *line)
{
    const enum volume_state state = state_from_name(line->state);
    const struct explanation *why = reason_explain(reason_from_name(line->reason), state);

    return why ? why : state_explain(state);
}

static bool line_needs_attention(const struct store_volume_line *line)
{
    return needs_attention(state_from_name(line->state), reason_from_name(line->reason));
}

static void write_why(struct page *page, const struct store_volume_line *line,
                      const struct explanation *why)
{
    struct buffer *html = page->html;

    if (why) {
        html_raw(html, "<p>");
        html_text(html, why->meaning);
        html_raw(html, "</p>");
    }
    for (size_t i = 0; why && i < EXPLANATION_REMEDIES && why->remedy[i]; i++) {
        html_raw(html, i == 0 ? "<ul><li>" : "<li>");
        html_text(html, why->remedy[i]);
        html_raw(html, "</li>");
    }
    if (why && why->remedy[0])
        html_raw(html, "</ul>");
    if (*line->error) {
        html_raw(html, "<p class=error>");
        html_text(html, line->error);
        html_raw(html, "</p>");
    }
    if (line->abnormal) {
        html_raw(html, "<p class=error>The guest says that its file system is abnormal: ");
        html_text(html, line->guest_words);
        html_raw(html, "</p>");
    }
}

static void write_details(struct page *page, const struct store_volume_line *line,
                          const struct explanation *why)
{
    struct buffer *html = page->html;

    html_raw(html, page->rows++ < OPENED ? "<details open><summary><b>" : "<details><summary><b>");
    html_text(html, line->name);
    html_raw(html, "</b> ");
    write_state(html, line->state, line->reason, line->stalled);
    html_raw(html, " <small>for ");
    html_span(html, page->now_ms > line->since_ms ? page->now_ms - line->since_ms : 0);
    if (line->next_attempt_ms > page->now_ms) {
        html_raw(html, ", tried again in ");
        html_span(html, line->next_attempt_ms - page->now_ms);
    }
    html_raw(html, "</small>");
    if (why && why != explain_line(line)) {
        html_raw(html, " <span class=reason>");
        write_words(html, line->not_resizable);
        html_raw(html, "</span>");
    }
    html_raw(html, "</summary>");
    write_why(page, line, why);
    html_raw(html, "<p><code>crustctl explain ");
    html_number(html, (uint64_t)line->volume_id);
    html_raw(html, "</code></p></details>\n");
}

static int write_stalled(void *userdata, const struct store_volume_line *line)
{
    struct page *page = userdata;

    if (!line->stalled)
        return buffer_error(page->html);
    html_raw(page->html, page->rows == 0 ? "<h2>Stalled</h2>\n<section>\n" : "");
    write_details(page, line, explain_line(line));
    return buffer_error(page->html);
}

static int write_attention(void *userdata, const struct store_volume_line *line)
{
    struct page *page = userdata;

    if (line->stalled || !(line->abnormal || line_needs_attention(line)))
        return buffer_error(page->html);
    html_raw(page->html, page->rows == 0 ? "<h2>To look at</h2>\n<section>\n" : "");
    write_details(page, line, explain_line(line));
    return buffer_error(page->html);
}

/* In use and without a present problem, but a resize would not reach the file system. */
static int write_not_resizable(void *userdata, const struct store_volume_line *line)
{
    struct page *page = userdata;

    if (!*line->not_resizable || line->stalled || line->abnormal || line_needs_attention(line))
        return buffer_error(page->html);
    html_raw(page->html, page->rows == 0 ? "<h2>Would not grow</h2>\n<section>\n" : "");
    write_details(page, line, reason_explain_resizable(reason_from_name(line->not_resizable)));
    return buffer_error(page->html);
}

static int write_list(struct page *page, struct store_reader *reader,
                      store_volume_line_callback *write, struct error *error)
{
    int r;

    page->rows = 0;
    r = store_list_volumes(reader, STATUS_PAGE_VOLUMES, write, page, error);
    html_raw(page->html, page->rows ? "</section>\n" : "");
    return r;
}

/* ---- all volumes ---- */

static void write_cell(struct buffer *html, const char *label, uint64_t bytes, bool differs)
{
    html_raw(html,
             differs ? "<td class=\"size differs\" data-label=\"" : "<td class=size data-label=\"");
    html_raw(html, label);
    html_raw(html, "\">");
    html_size(html, bytes);
    html_raw(html, "</td>");
}

static int write_volume(void *userdata, const struct store_volume_line *line)
{
    struct page *page = userdata;
    struct buffer *html = page->html;
    const bool differs = line->hypervisor_bytes && line->device_bytes &&
                         line->hypervisor_bytes != line->device_bytes;

    page->rows++;
    html_raw(html, "<tr><th scope=row title=\"");
    html_text(html, line->path);
    html_raw(html, "\">");
    html_text(html, line->name);
    html_raw(html, "<small>");
    html_text(html, *line->pod ? line->pod : line->device);
    html_raw(html, *line->claim ? ", claim " : "");
    html_text(html, line->claim);
    html_raw(html, "</small></th><td class=states>");
    write_state(html, line->state, line->reason, line->stalled);
    html_raw(html, "</td>");
    write_cell(html, "Host", line->device_bytes, false);
    write_cell(html, "Hypervisor", line->hypervisor_bytes, differs);
    write_cell(html, "Guest", line->guest_bytes, false);
    html_raw(html, "<td class=vmm>");
    html_text(html, line->hypervisor);
    html_raw(html, "</td></tr>\n");
    return buffer_error(html);
}

static int write_volumes(struct page *page, struct store_reader *reader, struct error *error)
{
    struct buffer *html = page->html;
    int r = write_list(page, reader, write_stalled, error);

    if (r == 0)
        r = write_list(page, reader, write_attention, error);
    if (r == 0)
        r = write_list(page, reader, write_not_resizable, error);
    html_raw(html, "<h2>Volumes</h2>\n");
    if (r < 0 || page->volumes == 0) {
        html_raw(html, "<p class=none>No volume is staged on this node.</p>\n");
        return r;
    }
    html_raw(html, "<table><thead><tr><th scope=col>Volume</th><th scope=col>State</th>"
                   "<th scope=col class=size>Host</th><th scope=col class=size>Hypervisor</th>"
                   "<th scope=col class=size>Guest</th><th scope=col>VM</th></tr></thead>\n"
                   "<tbody>\n");
    page->rows = 0;
    r = store_list_volumes(reader, STATUS_PAGE_VOLUMES, write_volume, page, error);
    html_raw(html, "</tbody></table>\n");
    if (page->volumes > page->rows) {
        html_raw(html, "<p class=none>and ");
        html_number(html, page->volumes - page->rows);
        html_raw(html, " more: <code>crustctl volumes</code></p>\n");
    }
    html_raw(html, "<p class=note>The guest's size is what its file system offers: less than the "
                   "device's, by what it keeps for itself.</p>\n");
    return r;
}

/* ---- resizes ---- */

static void write_step(struct buffer *html, const char *name, int64_t from_ms, int64_t to_ms)
{
    if (!from_ms || !to_ms)
        return;
    html_raw(html, "<span class=step>");
    html_raw(html, name);
    html_raw(html, " +");
    html_span(html, to_ms > from_ms ? to_ms - from_ms : 0);
    html_raw(html, "</span> ");
}

static int write_resize(void *userdata, const struct store_resize_line *line)
{
    struct page *page = userdata;
    struct buffer *html = page->html;

    html_raw(html, page->rows++ == 0 ? "<ol class=timeline>\n<li class=\"" : "<li class=\"");
    html_raw(html, kind_of(line->state, line->reason, line->stalled));
    html_raw(html, "\">");
    html_time(html, line->detected_ms);
    html_raw(html, "<div><b>");
    html_text(html, line->name);
    html_raw(html, "</b> <span class=sizes>");
    html_size(html, line->from_bytes);
    html_raw(html, " \xe2\x86\x92 ");
    html_size(html, line->to_bytes);
    html_raw(html, "</span> ");
    write_state(html, line->state, line->reason, line->stalled);
    html_raw(html, "<p>");
    write_step(html, "hypervisor", line->detected_ms, line->hypervisor_ms);
    write_step(html, "guest", line->hypervisor_ms, line->guest_ms);
    if (!line->finished_ms)
        html_raw(html, "<span class=step>not done yet</span>");
    html_raw(html, "</p>");
    if (*line->error) {
        html_raw(html, "<p class=error>");
        html_text(html, line->error);
        html_raw(html, "</p>");
    }
    html_raw(html, "</div></li>\n");
    return buffer_error(html);
}

static int write_resizes(struct page *page, struct store_reader *reader, struct error *error)
{
    int r;

    html_raw(page->html, "<h2>Recent resizes</h2>\n");
    page->rows = 0;
    r = store_list_resizes(reader, STATUS_PAGE_RESIZES, write_resize, page, error);
    html_raw(page->html,
             page->rows ? "</ol>\n" : "<p class=none>No device has grown so far.</p>\n");
    return r;
}

int status_page_write(struct reconciler *reconciler, struct buffer *ret_page, struct error *error)
{
    struct page page = {.html = ret_page, .now_ms = clock_realtime_ms()};
    struct store_reader *reader = reconciler_reader(reconciler);
    int r = count_all(&page, reader, error);

    if (r < 0)
        return r;
    write_head(&page, reconciler);
    write_tiles(&page);
    r = write_volumes(&page, reader, error);
    if (r == 0)
        r = write_resizes(&page, reader, error);
    if (r < 0)
        return r;
    html_raw(page.html,
             "</main>\n<footer><a href=\"/metrics\">metrics</a> <a href=\"/v1/volumes\">volumes"
             "</a> <a href=\"/v1/resizes?last=100\">resizes</a> <a href=\"/v1/journal?last=100\">"
             "journal</a> <a href=\"/v1/doctor\">doctor</a></footer>\n</html>\n");
    r = buffer_error(ret_page);
    return r < 0 ? error_set_errno(error, r, "the status page") : 0;
}
