/* SPDX-License-Identifier: Apache-2.0 */
/* finding.c - findings are written in the order of the examination; crustctl sorts them. */
#include "doctor/finding.h"

#include <stdarg.h>
#include <stdio.h>

#include "lib/json.h"

enum { WHAT_BYTES = 1024 };

static const char *const levels[] = {
    [FINDING_OK] = "ok",
    [FINDING_NOTE] = "note",
    [FINDING_WARNING] = "warning",
    [FINDING_ERROR] = "error",
};

void findings_begin(struct findings *findings, struct buffer *json)
{
    *findings = (struct findings){.json = json};
    buffer_append_text(json, "[");
}

void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
{
    struct buffer *json = findings->json;
    char what[WHAT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    buffer_append_text(json, findings->count++ ? ",{" : "{");
    json_append_member(json, "id", id);
    json_append_member(json, "level", levels[level]);
    json_append_member(json, "what", what);
    json_append_member(json, "where", where);
    json_append_member(json, "remedy", remedy);
    buffer_append_text(json, "}");
}

int findings_end(struct findings *findings)
{
    return buffer_append_text(findings->json, "]");
}
