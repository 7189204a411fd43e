/* SPDX-License-Identifier: Apache-2.0 */
/* findings.h - findings as a test reads them: written, parsed, looked up. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "tests/unit/test.h"

struct written {
    struct buffer json;
    struct findings findings;
    cJSON *list;
};

static inline void written_begin(struct written *written)
{
    *written = (struct written){.findings = {.boot_id = "b"}};
    written->findings.json = &written->json;
    assert_int_equal(buffer_append_text(&written->json, "["), 0);
}

static inline void written_end(struct written *written)
{
    assert_int_equal(buffer_append_text(&written->json, "]"), 0);
    assert_int_equal(json_parse(buffer_text(&written->json), written->json.length,
                                (struct json_limits){1 << 20, 4, 0}, &written->list, NULL),
                     0);
}

static inline void written_done(struct written *written)
{
    cJSON_Delete(written->list);
    buffer_done(&written->json);
}

/* The one with this id whose `what` or `where` has the text in it; fails if there is none. */
static inline const cJSON *written_find(const struct written *written, const char *id,
                                        const char *text)
{
    const cJSON *finding;

    cJSON_ArrayForEach(finding, written->list)
    {
        const char *where = json_string(finding, "where");

        if (strcmp(json_string(finding, "id"), id) == 0 &&
            (strstr(json_string(finding, "what"), text) || (where && strstr(where, text))))
            return finding;
    }
    fail_msg("no finding %s with \"%s\" in %s", id, text, buffer_text(&written->json));
    return NULL;
}

static inline unsigned written_count(const struct written *written, const char *id)
{
    const cJSON *finding;
    unsigned count = 0;

    cJSON_ArrayForEach(finding, written->list)
    {
        count += strcmp(json_string(finding, "id"), id) == 0;
    }
    return count;
}

/* What is well needs no remedy, and what is wrong has one. */
static inline void written_expect(const struct written *written, const char *id, const char *text,
                                  const char *level)
{
    const cJSON *finding = written_find(written, id, text);

    if (strcmp(json_string(finding, "level"), level) != 0)
        fail_msg("%s is %s, not %s", json_string(finding, "what"), json_string(finding, "level"),
                 level);
    if (strcmp(level, "ok") == 0)
        assert_null(json_string(finding, "remedy"));
    if (strcmp(level, "error") == 0 && strcmp(id, "path") != 0)
        assert_non_null(json_string(finding, "remedy"));
}
