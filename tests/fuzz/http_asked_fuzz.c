/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked_fuzz.c - HTTP bodies, paths and arguments of stats and resize. The first byte chooses
 * the dialect; what follows is the path's tail, a newline, the argument, a newline, the body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/http_routes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static const struct {
    const char *path;
    enum http_dialect dialect;
} dialects[] = {
    {"/v1/volumes/", HTTP_VOLUME_RESIZE},
    {"/v1/volumes/", HTTP_VOLUME_STATS},
    {"/direct-volume/stats", HTTP_SHIM_STATS},
    {"/direct-volume/resize", HTTP_SHIM_RESIZE},
    {"/fs-stats", HTTP_FS_STATS},
    {"/fs-resize", HTTP_FS_RESIZE},
};

/* What was understood names one volume, in one way, by bounded texts. */
static void check(const struct http_asked *asked)
{
    const struct reconciler_target *target = &asked->expand.target;

    must((target->volume_id > 0) + !!target->target_path + !!target->device == 1);
    must(!target->target_path || target->target_path == asked->path);
    must(!target->sandbox_id || target->device);
    must(strlen(asked->path) < sizeof(asked->path));
    must(asked->expand.required_bytes <= INT64_MAX && asked->expand.limit_bytes <= INT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t which = size ? data[0] % (sizeof(dialects) / sizeof(dialects[0])) : 0;
    static struct http_asked asked;
    struct http_request request = {0};
    struct error error = {0};
    char *text, *path, *argument = NULL, *body = NULL;

    if (size == 0)
        return 0;
    text = calloc(1, size + 64);
    must(text != NULL);
    path = text;
    (void)strcpy(path, dialects[which].path);
    memcpy(path + strlen(path), data + 1, size - 1);
    argument = strchr(path, '\n');
    body = argument ? strchr(argument + 1, '\n') : NULL;
    if (argument)
        *argument++ = '\0';
    if (body)
        *body++ = '\0';
    request.path = path;
    request.arguments = argument && *argument;
    request.argument[0] = (struct http_argument){"path", argument};
    request.body = body ? body : "";
    request.body_length =
        body ? size - 1 - (size_t)(body - text - strlen(dialects[which].path)) : 0;
    memset(&asked, 0, sizeof(asked));
    if (http_asked_read(dialects[which].dialect, &request, &asked, &error) == STATUS_OK)
        check(&asked);
    free(text);
    return 0;
}
