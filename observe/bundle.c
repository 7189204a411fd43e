/* SPDX-License-Identifier: Apache-2.0 */
/* bundle.c - which host paths a container mounts where, which block devices it has, and which
 * sandbox it belongs to.
 *
 * A mount counts if its source is an absolute path and its type is one that Kata may replace by a
 * block device: "bind", which the kubelet's volumes have, or a type that names the kind of volume
 * (src/runtime-rs, resource/src/volume/direct_volume.rs).
 */
#include "observe/bundles.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"
#include "observe/kata.h"

#define CONFIDENTIAL "io.katacontainers.volume.confidential"
#define NAMES                                                                                      \
    "mounts{source destination type} linux{devices{type major minor}} annotations{"                \
    "=io.kubernetes.cri.sandbox-id =io.kubernetes.cri.sandbox-namespace"                           \
    " =io.kubernetes.cri.sandbox-name =io.kubernetes.cri.sandbox-uid"                              \
    " =io.kubernetes.cri-o.SandboxID =io.kubernetes.pod.namespace =io.kubernetes.pod.name"         \
    " =io.kubernetes.pod.uid =" CONFIDENTIAL

enum { NAMES_BYTES = 1024 };

static int copy(const char *text, struct bundle *bundle, char **ret_copy)
{
    if (!text || !*text)
        return 0;
    *ret_copy = strdup(text);
    bundle->bytes += strlen(text) + 1;
    return *ret_copy ? 0 : -ENOMEM;
}

static bool may_be_volume(const char *type)
{
    static const char *const types[] = {"bind", "directvol", "vfiovol", "spdkvol", "spoolvol"};

    for (size_t i = 0; type && i < array_length(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return !type || !*type; /* the specification allows a bind mount to omit it */
}

static int read_mount(const cJSON *object, struct bundle *bundle)
{
    const char *source = json_string(object, "source");
    const char *destination = json_string(object, "destination");
    struct bundle_mount *mount = &bundle->mount[bundle->mounts];
    int r;

    if (!source || source[0] != '/' || !destination || destination[0] != '/' ||
        !may_be_volume(json_string(object, "type")))
        return 0;
    bundle->mounts++;
    r = copy(source, bundle, &mount->source);
    return r < 0 ? r : copy(destination, bundle, &mount->destination);
}

static int read_mounts(const cJSON *object, struct bundle *bundle, struct error *error)
{
    const cJSON *mounts = json_member(object, "mounts"), *mount;
    void *room;
    int r = kata_make_room(mounts, BUNDLE_MOUNTS, sizeof(*bundle->mount), &room, "mounts", error);

    if (r != FILE_READ)
        return r;
    bundle->mount = room;
    if (!cJSON_IsArray(mounts))
        return 0;
    bundle->bytes += (size_t)cJSON_GetArraySize(mounts) * sizeof(*bundle->mount);
    cJSON_ArrayForEach(mount, mounts)
    {
        if (r == 0)
            r = read_mount(mount, bundle);
    }
    return r;
}

static bool read_number(const cJSON *object, const char *name, uint32_t *ret_number)
{
    const cJSON *number = json_member(object, name);

    if (!cJSON_IsNumber(number) || number->valuedouble < 0 || number->valuedouble > UINT32_MAX)
        return false;
    *ret_number = (uint32_t)number->valuedouble;
    return true;
}

static int read_devices(const cJSON *object, struct bundle *bundle, struct error *error)
{
    const cJSON *devices = json_member(json_member(object, "linux"), "devices"), *device;
    void *room;
    int r = kata_make_room(devices, BUNDLE_DEVICES, sizeof(*bundle->device), &room, "linux.devices",
                           error);

    if (r != FILE_READ)
        return r;
    bundle->device = room;
    if (!cJSON_IsArray(devices))
        return 0;
    bundle->bytes += (size_t)cJSON_GetArraySize(devices) * sizeof(*bundle->device);
    cJSON_ArrayForEach(device, devices)
    {
        const char *type = json_string(device, "type");
        uint32_t major, minor;

        if (type && strcmp(type, "b") == 0 && read_number(device, "major", &major) &&
            read_number(device, "minor", &minor))
            bundle->device[bundle->devices++] = makedev(major, minor);
    }
    return 0;
}

static int copy_annotation(const cJSON *annotations, const char *name, const char *other_name,
                           struct bundle *bundle, char **ret_copy)
{
    const char *value = json_string(annotations, name);

    return copy(value ? value : json_string(annotations, other_name), bundle, ret_copy);
}

int bundle_parse(const char *text, size_t length, const char *grow_annotation,
                 struct bundle *ret_bundle, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    struct bundle bundle = {0};
    const cJSON *annotations;
    char names[NAMES_BYTES];
    const char *wish;
    int r;

    (void)snprintf(names, sizeof(names), "%s%s%s}", NAMES, *grow_annotation ? " =" : "",
                   grow_annotation);
    r = json_read(text, length, JSON_LIMITS_BUNDLE, names, &object, error);
    if (r != FILE_READ)
        return r;
    if (!cJSON_IsObject(object))
        return error_set(error, FILE_WRONG, "not an object");
    annotations = json_member(object, "annotations");
    r = copy_annotation(annotations, "io.kubernetes.cri.sandbox-id",
                        "io.kubernetes.cri-o.SandboxID", &bundle, &bundle.sandbox_id);
    if (r == 0)
        r = copy_annotation(annotations, "io.kubernetes.cri.sandbox-namespace",
                            "io.kubernetes.pod.namespace", &bundle, &bundle.pod_namespace);
    if (r == 0)
        r = copy_annotation(annotations, "io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name",
                            &bundle, &bundle.pod_name);
    if (r == 0)
        r = copy_annotation(annotations, "io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid",
                            &bundle, &bundle.pod_uid);
    bundle.is_confidential = json_string(annotations, CONFIDENTIAL);
    wish = json_string(annotations, grow_annotation);
    bundle.grows_file_systems = wish && strcmp(wish, "true") == 0;
    if (r == 0)
        r = read_mounts(object, &bundle, error);
    if (r == 0)
        r = read_devices(object, &bundle, error);
    if (r == 0)
        *ret_bundle = bundle;
    else
        bundle_done(&bundle);
    return r;
}

void bundle_done(struct bundle *bundle)
{
    if (!bundle)
        return;
    for (unsigned i = 0; i < bundle->mounts; i++) {
        free(bundle->mount[i].source);
        free(bundle->mount[i].destination);
    }
    free(bundle->mount);
    free(bundle->device);
    free(bundle->sandbox_id);
    free(bundle->pod_namespace);
    free(bundle->pod_name);
    free(bundle->pod_uid);
    *bundle = (struct bundle){0};
}
