/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_fuzz.c - config.json of an OCI bundle; and what is kept of a text is what it has. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/bundles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_bundle(const char *text, size_t size)
{
    struct bundle bundle;
    struct error error;

    if (bundle_parse(text, size, "crustd.dev/grow-file-system", &bundle, &error) != FILE_READ)
        return;
    must(bundle.mounts <= BUNDLE_MOUNTS && bundle.devices <= BUNDLE_DEVICES);
    must(bundle.bytes <= 2 * size + sizeof(void *) * 2 * size);
    for (unsigned i = 0; i < bundle.mounts; i++)
        must(bundle.mount[i].source[0] == '/' && bundle.mount[i].destination[0] == '/');
    bundle_done(&bundle);
}

/* A member that is kept is the same as in a tree of everything, and the only one of its name. */
static void check_member(const cJSON *kept, const cJSON *whole, const char *name)
{
    char *left = cJSON_PrintUnformatted(json_member(kept, name));
    char *right = cJSON_PrintUnformatted(json_member(whole, name));

    must(left && right ? strcmp(left, right) == 0 : left == right);
    free(left);
    free(right);
}

static void check_kept(const char *text, size_t size)
{
    const struct json_limits limits = {64 * 1024, 64, 0};
    cJSON *kept = NULL, *whole = NULL, *other;
    int r = json_read(text, size, limits, "mounts{source destination} ociVersion", &kept, NULL);

    must((r == FILE_READ) == !!kept);
    if (r != FILE_READ)
        return;
    must(json_parse(text, size, limits, &whole, NULL) == 0);
    check_member(kept, whole, "ociVersion");
    must(cJSON_GetArraySize(json_member(kept, "mounts")) <=
         cJSON_GetArraySize(json_member(whole, "mounts")));
    other =
        cJSON_IsArray(json_member(whole, "mounts")) ? json_member(whole, "mounts")->child : NULL;
    for (cJSON *one = json_member(kept, "mounts") ? json_member(kept, "mounts")->child : NULL;
         one && other; one = one->next, other = other->next) {
        check_member(one, other, "source");
        check_member(one, other, "destination");
    }
    cJSON_Delete(kept);
    cJSON_Delete(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_bundle((const char *)data, size);
    check_kept((const char *)data, size);
    return 0;
}
