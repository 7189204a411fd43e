/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - what an examination found, as JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/json.h"

enum { WHAT_BYTES = 1024 };

__attribute__((format(printf, 6, 0))) static void add(struct findings *findings,
                                                      enum finding_level level, const char *id,
                                                      const char *where, const char *remedy,
                                                      const char *format, va_list arguments)
{
    static const char *const levels[] = {"ok", "note", "warning", "error"};
    struct buffer *json = findings->json;
    char what[WHAT_BYTES];

    (void)vsnprintf(what, sizeof(what), format, arguments);
    buffer_append_text(json, findings->count++ ? ",{" : "{");
    json_append_member(json, "id", id);
    json_append_member(json, "level", levels[level]);
    json_append_member(json, "what", what);
    json_append_member(json, "where", where);
    json_append_member(json, "remedy", remedy);
    buffer_append_text(json, "}");
}

void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add(findings, level, id, where, remedy, format, arguments);
    va_end(arguments);
}

void findings_check(struct findings *findings, bool is_well, const char *well,
                    enum finding_level level, const char *id, const char *where, const char *remedy,
                    const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (is_well)
        findings_add(findings, FINDING_OK, id, where, NULL, "%s", well);
    else
        add(findings, level, id, where, remedy, format, arguments);
    va_end(arguments);
}

bool findings_is_running(const struct findings *findings, const cJSON *sandbox)
{
    return strcmp(json_text(sandbox, "boot_id"), findings->boot_id) == 0;
}
