/* finding.c - findings are written as they are found; whoever shows them puts them in order. */
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
    findings->result = buffer_append_text(json, "[");
}

static int append_member(struct buffer *json, const char *before, const char *text)
{
    int r = buffer_append_text(json, before);

    return r < 0 ? r : json_append_string(json, text);
}

void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
{
    struct buffer *json = findings->json;
    char what[WHAT_BYTES];
    va_list arguments;
    int r = findings->result;

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    if (r == 0)
        r = append_member(json, findings->count++ ? ",{\"id\":" : "{\"id\":", id);
    if (r == 0)
        r = append_member(json, ",\"level\":", levels[level]);
    if (r == 0)
        r = append_member(json, ",\"what\":", what);
    if (r == 0)
        r = append_member(json, ",\"where\":", where);
    if (r == 0)
        r = append_member(json, ",\"remedy\":", remedy);
    if (r == 0)
        r = buffer_append_text(json, "}");
    findings->result = r;
}

int findings_end(struct findings *findings)
{
    return findings->result < 0 ? findings->result : buffer_append_text(findings->json, "]");
}
