/* row.c - what people call the things that a row of a view is about. */
#include "crustctl/row.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "crustctl/display.h"
#include "lib/cleanup.h"
#include "lib/json.h"

const char *row_text(const cJSON *row, const char *key)
{
    const char *text = json_string(row, key);

    return text ? text : "";
}

uint64_t row_number(const cJSON *row, const char *key, bool *ret_known)
{
    uint64_t number = 0;
    const bool known = json_number(row, key, &number) == 0;

    if (ret_known)
        *ret_known = known;
    return number;
}

const char *row_reason(const cJSON *row)
{
    const char *reason = row_text(row, "reason");

    return *reason ? reason : "none";
}

int row_path_or_key(const cJSON *row, struct buffer *ret_text)
{
    const char *path = row_text(row, "target_path");

    return buffer_append_text(ret_text, *path ? path : row_text(row, "key"));
}

int row_volume_name(const cJSON *row, struct buffer *ret_text)
{
    const char *pv = row_text(row, "pv");

    return *pv ? buffer_append_text(ret_text, pv) : row_path_or_key(row, ret_text);
}

int row_state(const cJSON *row, struct buffer *ret_text)
{
    const char *reason = row_reason(row);

    if (strcmp(reason, "none") == 0)
        return buffer_append_text(ret_text, row_text(row, "state"));
    return buffer_append_format(ret_text, "%s/%s", row_text(row, "state"), reason);
}

int row_pod(const cJSON *row, struct buffer *ret_text)
{
    if (!*row_text(row, "pod_name"))
        return 0;
    return buffer_append_format(ret_text, "%s/%s", row_text(row, "pod_namespace"),
                                row_text(row, "pod_name"));
}

int row_device_number(const cJSON *row, struct buffer *ret_text)
{
    bool known;
    uint64_t major = row_number(row, "major", &known);

    if (!known)
        return 0;
    return buffer_append_format(ret_text, "%" PRIu64 ":%" PRIu64, major,
                                row_number(row, "minor", NULL));
}

static int append_member(const cJSON *member, struct buffer *out)
{
    char *text = NULL;
    int result = buffer_append_text(out, "  ");

    if (!cJSON_IsString(member))
        text = cJSON_PrintUnformatted(member);
    if (result == 0 && member->string)
        result = display_append(out, member->string);
    if (result == 0 && member->string)
        result = buffer_append_text(out, "=");
    if (result == 0)
        result = display_append(out, text                     ? text
                                     : cJSON_IsString(member) ? member->valuestring
                                                              : "");
    cJSON_free(text);
    return result;
}

static int append_detail(const cJSON *detail, struct buffer *out)
{
    const cJSON *member;
    int result = 0;

    if (!detail || cJSON_IsNull(detail))
        return 0;
    if (!cJSON_IsObject(detail))
        return append_member(detail, out);
    cJSON_ArrayForEach(member, detail)
    {
        if (result == 0)
            result = append_member(member, out);
    }
    return result;
}

int row_print_journal(const cJSON *row, struct buffer *out)
{
    char time[DISPLAY_TIME_BYTES];
    bool about_volume;
    uint64_t volume = row_number(row, "volume_id", &about_volume);
    int result;

    display_time(row_text(row, "at"), time);
    result = display_append(out, time);
    if (result == 0)
        result = buffer_append_text(out, "  ");
    if (result == 0)
        result = display_append_padded(out, row_text(row, "kind"), 12);
    if (result == 0 && about_volume)
        result = buffer_append_format(out, "  volume %" PRIu64, volume);
    if (result == 0 && *row_text(row, "sandbox_id")) {
        result = buffer_append_text(out, "  sandbox ");
        if (result == 0)
            result = display_append_short(out, row_text(row, "sandbox_id"), 16);
    }
    if (result == 0 && *row_text(row, "device")) {
        result = buffer_append_text(out, "  ");
        if (result == 0)
            result = display_append(out, row_text(row, "device"));
    }
    if (result == 0)
        result = append_detail(json_member(row, "detail"), out);
    return result == 0 ? buffer_append_text(out, "\n") : result;
}

static int append_value(const cJSON *value, struct buffer *out)
{
    char *text = cJSON_PrintUnformatted(value);
    int result = text ? buffer_append_text(out, text) : -ENOMEM;

    cJSON_free(text);
    return result;
}

int row_print_json(const cJSON *value, struct buffer *out)
{
    const cJSON *row;
    bool first = true;
    int result;

    if (!cJSON_IsArray(value)) {
        result = append_value(value, out);
        return result == 0 ? buffer_append_text(out, "\n") : result;
    }
    result = buffer_append_text(out, "[");
    cJSON_ArrayForEach(row, value)
    {
        if (result == 0)
            result = buffer_append_text(out, first ? "\n" : ",\n");
        if (result == 0)
            result = append_value(row, out);
        first = false;
    }
    return result == 0 ? buffer_append_text(out, first ? "]\n" : "\n]\n") : result;
}
