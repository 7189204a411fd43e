/* SPDX-License-Identifier: Apache-2.0 */
/* advice.c - picks the explanation of the reason over that of the state, adds the remedies for
 * layers that have not followed, and names an obstacle to a resize once even if it is also the
 * state's reason.
 *
 * What is known has one function per subject; each states what is known or, where it matters, that
 * nothing is.
 */
#include "model/volume.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "model/reason.h"
#include "model/sandbox.h"
#include "model/stale_reason.h"

enum {
    LAYER_REMEDIES = 4,
    LAYERS_SAID = 6, /* crustctl layers has them all */
};

/* Members but the volume are NULL if there is none. */
struct advice {
    const cJSON *volume, *mapping, *sandbox, *layers, *resize, *cleanup, *judged;
    const char *resize_mode;
    struct buffer known; /* the sentences, each with its NUL */
};

/* ---- lists of sentences ---- */

/* Whether the text is in one of the sentences already: several rows may have it. */
static bool is_said(const struct buffer *list, const char *text)
{
    return list->length > 0 && memmem(list->data, list->length, text, strlen(text));
}

static void append_list(struct buffer *json, const char *name, const struct buffer *list)
{
    json_append_name(json, name);
    buffer_append_text(json, "[");
    for (size_t at = 0; at < list->length; at += strlen(list->data + at) + 1) {
        buffer_append_text(json, at ? "," : "");
        json_append_string(json, list->data + at);
    }
    buffer_append_text(json, "]");
    buffer_fail(json, buffer_error(list));
}

/* Adds a sentence to what is known. */
#define say(advice, ...)                                                                           \
    do {                                                                                           \
        buffer_append_format(&(advice)->known, __VA_ARGS__);                                       \
        buffer_append(&(advice)->known, "", 1);                                                    \
    } while (false)

/* ---- words of rows ---- */

/* *ret_number is 0 if the row has no such number. */
static bool has_number(const cJSON *row, const char *key, uint64_t *ret_number)
{
    *ret_number = 0;
    return json_number(row, key, ret_number) == JSON_NUMBER;
}

static uint64_t number_of(const cJSON *row, const char *key)
{
    uint64_t number;

    (void)has_number(row, key, &number);
    return number;
}

static bool is_text(const cJSON *row, const char *key, const char *text)
{
    return strcmp(json_text(row, key), text) == 0;
}

static bool is_block_claim(const struct advice *advice)
{
    return is_text(advice->volume, "kind", "block_claim");
}

/* ---- what is known ---- */

/* Says nothing if there is no text. */
static void say_text(struct advice *advice, const char *before, const char *text, const char *after)
{
    if (*text)
        say(advice, "%s%s%s", before, text, after);
}

/* Says nothing if the text was said before. */
static void say_new(struct advice *advice, const char *before, const char *text, const char *after)
{
    if (!is_said(&advice->known, text))
        say_text(advice, before, text, after);
}

static void say_device(struct advice *advice)
{
    const enum volume_reason reason = reason_from_name(json_text(advice->volume, "reason"));
    const char *status = json_text(advice->volume, "status");
    const char *device = json_text(advice->volume, "device");
    const char *kernel = json_text(advice->mapping, "device");
    uint64_t bytes;

    /* The meaning of a reason says so, too. */
    if (*status && strcmp(status, "present") != 0 && reason == REASON_NONE)
        say(advice,
            is_block_claim(advice) ? "The claim is %s: no container has it any more."
                                   : "The volume's metadata is %s.",
            status);
    say_text(advice, "Problem: ", json_text(advice->volume, "problem"), "");
    if (!*device)
        return;
    /* After a rewrite the mapping has the device that the VM was given, not what this path names.
     */
    if (reason == REASON_IDENTITY_MISMATCH)
        kernel = "";
    if (*kernel && strcmp(kernel, device) != 0)
        say(advice, "Its device is %s, which leads to %s.", device, kernel);
    else
        say(advice, "Its device is %s.", device);
    if (has_number(advice->volume, "device_bytes", &bytes))
        say(advice, "On the host the device has %s (%" PRIu64 " bytes).", text_size(bytes).text,
            bytes);
}

static void say_block_claim(struct advice *advice)
{
    if (!is_block_claim(advice))
        return;
    say(advice, "It is a raw block claim: no metadata describes it, and the runtime gives the VM "
                "the device as it is.");
    say(advice,
        "What is on it is the pod's affair, so the pod itself has to use new space: with its own "
        "resize2fs, xfs_growfs or btrfs filesystem resize, or with crust-guest-agent as a sidecar "
        "that has mounted it. A file system that the guest itself has mounted from it is grown by "
        "crustd if the pod has the annotation of resize.grow_annotation "
        "(crustd.dev/grow-file-system: \"true\").");
}

static void say_layers(struct advice *advice)
{
    const cJSON *layer = NULL;
    unsigned count = 0;

    cJSON_ArrayForEach(layer, advice->layers)
    {
        const char *label = json_text(layer, "name");

        if (count++ == LAYERS_SAID)
            break;
        say(advice, "%s %s (%s%s%s) has %s%s.", count == 1 ? "Its storage, from the top:" : "Then",
            json_text(layer, "device"), json_text(layer, "kind"), *label ? " " : "", label,
            text_size(number_of(layer, "size_bytes")).text,
            is_text(layer, "state", "stale")     ? " and has announced a new size"
            : is_text(layer, "state", "pending") ? " and has not followed its lower device"
                                                 : "");
    }
}

static void say_hypervisor_size(struct advice *advice)
{
    const uint64_t device = number_of(advice->volume, "device_bytes");
    uint64_t bytes;

    if (!has_number(advice->volume, "hypervisor_bytes", &bytes)) {
        if (advice->sandbox)
            say(advice, "Which size the hypervisor has is not known.");
    } else if (bytes == device) {
        say(advice, "The hypervisor has the same size.");
    } else {
        say(advice, "The hypervisor has %s (%" PRIu64 " bytes), %s %s than the device.",
            text_size(bytes).text, bytes,
            text_size(device > bytes ? device - bytes : bytes - device).text,
            device > bytes ? "less" : "more");
    }
}

static void say_guest(struct advice *advice)
{
    const cJSON *volume = advice->volume;
    const char *message = json_text(volume, "condition_message");
    uint64_t total, used;

    if (has_number(volume, "guest_bytes", &total))
        say(advice,
            "The guest's file system reports %s in total; its own structures are not in that.",
            text_size(total).text);
    if (has_number(volume, "used_bytes", &used))
        say(advice, "At %s UTC the guest had %s of it in use and %s available.",
            text_time(json_text(volume, "stats_at")).text, text_size(used).text,
            text_size(number_of(volume, "available_bytes")).text);
    if (is_text(volume, "condition", "abnormal"))
        say(advice,
            "At %s UTC the guest said that the file system is abnormal%s%s. Look into the guest's "
            "kernel log; stop the pod before the file system is checked.",
            text_time(json_text(volume, "stats_at")).text, *message ? ": " : "", message);
}

static void say_sandbox(struct advice *advice)
{
    const cJSON *sandbox = advice->sandbox;
    const char *socket = json_text(sandbox, "control_socket");
    const char *drive = json_text(advice->mapping, "drive_id");

    if (sandbox) {
        say(advice, "It is used by sandbox %s (%s on %s, process %" PRIu64 ").",
            json_text(sandbox, "sandbox_id"), json_text(sandbox, "runtime"),
            json_text(sandbox, "hypervisor"), number_of(sandbox, "vmm_pid"));
        if (*json_text(sandbox, "pod_name"))
            say(advice, "The pod is %s/%s.", json_text(sandbox, "pod_namespace"),
                json_text(sandbox, "pod_name"));
        if (*socket)
            say(advice, "crustd speaks to the hypervisor on %s.", socket);
        else
            say(advice, "crustd has no socket to speak to the hypervisor on.");
    }
    /* Until the hypervisor's list has the drive, its name is the one that the runtime recorded. */
    if (*drive)
        say(advice, "%s calls the drive %s.",
            is_text(advice->mapping, "attached", "yes") ? "The hypervisor" : "Kata", drive);
    say_text(advice, "The guest has it at ", json_text(advice->mapping, "guest_path"), ".");
}

/* Kata's Go runtime has the guest change the owner; its Rust runtime reads no metadata at all. */
static void say_group(struct advice *advice)
{
    const cJSON *metadata = json_member(advice->volume, "metadata");
    const char *group = json_string(metadata, "fsGroup");
    const char *policy = json_text(metadata, "fsGroupChangePolicy");
    const enum kata_runtime runtime = runtime_from_name(json_text(advice->sandbox, "runtime"));

    if (!group)
        return;
    say(advice, "Its files are to belong to group %s (fsGroup%s%s).", group, *policy ? ", " : "",
        policy);
    if (runtime == RUNTIME_KATA_RS)
        say(advice, "This sandbox's runtime, Kata's in Rust, ignores fsGroup: change the owner in "
                    "an init container, or use Kata's Go runtime.");
    else if (runtime != RUNTIME_KATA_GO)
        say(advice, "Kata's Go runtime sees to that; its Rust runtime ignores fsGroup.");
}

/* What the reason rests on, and whether a resize would succeed now. */
static void say_resizable(struct advice *advice)
{
    const cJSON *volume = advice->volume;
    const char *reason = json_text(volume, "resizable_reason");
    const struct explanation *text = reason_explain_resizable(reason_from_name(reason));
    const char *meaning = text ? text->meaning : "";
    const char *what = is_block_claim(advice) ? "the VM's disk" : "the file system";

    say_text(advice, "Evidence: ", json_text(volume, "evidence"), ".");
    say_text(advice, "The volume's own metadata say crust.resize = ",
             json_text(json_member(volume, "metadata"), "crust.resize"), ".");
    if (strcmp(advice->resize_mode, "grow") != 0)
        say(advice, "The configuration says resize.mode = %s.", advice->resize_mode);
    if (*reason && is_text(volume, "reason", reason)) {
        if (is_text(volume, "state", "blocked"))
            return; /* its meaning says it all */
        meaning = "";
    }
    if (is_text(volume, "resizable", "yes"))
        say(advice, "A resize would reach %s: the hypervisor has the drive and can resize it%s.",
            what, is_block_claim(advice) ? "" : ", and the guest is able to follow");
    else if (*json_text(volume, "resizable"))
        say(advice,
            is_text(volume, "resizable", "no")
                ? "A resize would not reach %s (%s)%s%s"
                : "Whether a resize would reach %s is not known (%s)%s%s",
            what, reason, *meaning ? ". " : ".", meaning);
}

static void say_attempts(struct advice *advice)
{
    const struct text_word next = text_time(json_text(advice->volume, "next_attempt_at"));
    const cJSON *resize = advice->resize;

    if (resize && is_text(resize, "finished_at", "")) {
        say(advice, "The resize was noticed at %s UTC; attempts so far: %" PRIu64 ".",
            text_time(json_text(resize, "detected_at")).text, number_of(resize, "attempts"));
        say_new(advice, "The last error: ", json_text(resize, "error"), "");
    }
    if (!*next.text)
        return;
    /* A resize whose attempts failed is not host_grown any more: it has the reason. */
    if (is_text(advice->volume, "state", "host_grown"))
        say(advice, "It is acted on at %s UTC, if the size stays the same until then.", next.text);
    else
        say(advice, "It is tried again at %s UTC.", next.text);
}

/* The reason's remedy, and what was found. */
static void say_stale_reason(struct advice *advice, const cJSON *row)
{
    const char *remedy = stale_reason_remedy(stale_reason_from_name(json_text(row, "reason")));
    const cJSON *evidence = json_member(row, "evidence");

    say_new(advice, "", remedy ? remedy : "", "");
    say_new(advice, "What is wrong with it: ", json_text(evidence, "metadata_problem"), ".");
    say_new(advice, "What crustd cannot see: ", json_text(evidence, "problem"), ".");
}

static void say_judged(struct advice *advice)
{
    const cJSON *row = NULL;

    cJSON_ArrayForEach(row, advice->judged)
    {
        const enum stale_reason reason = stale_reason_from_name(json_text(row, "reason"));
        const char *meaning = stale_reason_meaning(reason);
        const char *file = json_string(json_member(row, "evidence"), "file");
        const char *waits_for = json_text(row, "waits_for");

        /* Of a volume that works nobody asks what keeps its metadata. */
        if (reason == STALE_REASON_IN_USE && is_text(advice->volume, "state", "in_sync"))
            continue;
        say(advice, "Its metadata%s%s, judged now: %s, %s%s%s", file ? ", file " : "",
            file ? file : "", json_text(row, "decision"), json_text(row, "reason"),
            meaning ? ". " : "", meaning ? meaning : "");
        if (*waits_for)
            say(advice, "A crustctl gc would remove it; crustd itself keeps it: %s. %s", waits_for,
                stale_reason_meaning(stale_reason_from_name(waits_for)));
        say_stale_reason(advice, row);
    }
}

static void say_cleanup(struct advice *advice)
{
    const cJSON *cleanup = advice->cleanup;
    const char *reason = json_text(cleanup, "reason");
    const char *meaning = stale_reason_meaning(stale_reason_from_name(reason));

    if (!cleanup)
        return;
    if (meaning && is_said(&advice->known, meaning))
        meaning = NULL;
    say(advice, "Last put on record about its metadata: found stale, and %s at %s UTC: %s%s%s",
        json_text(cleanup, "decision"), text_time(json_text(cleanup, "at")).text, reason,
        meaning ? ". " : ".", meaning ? meaning : "");
    if (!advice->judged)
        say_stale_reason(advice, cleanup);
    if (is_text(cleanup, "decision", "removed"))
        say(advice, "crustctl restore %" PRIu64 " puts it back while the trash has it.",
            number_of(cleanup, "cleanup_id"));
}

/* ---- what to do ---- */

static void add_remedies(struct buffer *list, const struct explanation *text)
{
    for (unsigned i = 0; text && i < EXPLANATION_REMEDIES && text->remedy[i]; i++)
        if (!is_said(list, text->remedy[i])) /* two reasons may have the same one */
            buffer_append(list, text->remedy[i], strlen(text->remedy[i]) + 1);
}

static void append_advice(const struct advice *advice, struct buffer *json)
{
    const enum volume_state state = state_from_name(json_text(advice->volume, "state"));
    const struct explanation *of_state = state_explain(state);
    const struct explanation *of_reason =
        reason_explain(reason_from_name(json_text(advice->volume, "reason")), state);
    const struct explanation *of_resizable =
        reason_explain_resizable(reason_from_name(json_text(advice->volume, "resizable_reason")));
    const struct explanation *text = of_reason ? of_reason : of_state;
    cleanup(buffer_done) struct buffer remedies = BUFFER_INIT(0);
    const cJSON *layer = NULL;
    unsigned count = 0;

    cJSON_ArrayForEach(layer, advice->layers)
    {
        const char *remedy = json_text(layer, "remedy");

        if (*remedy && count++ < LAYER_REMEDIES)
            buffer_append(&remedies, remedy, strlen(remedy) + 1);
    }
    if (of_resizable != text)
        add_remedies(&remedies, of_resizable);
    add_remedies(&remedies, text);
    json_append_member(json, "state_meaning", of_state ? of_state->meaning : NULL);
    json_append_member(json, "reason_meaning", of_reason ? of_reason->meaning : NULL);
    json_append_member(json, "resizable_meaning", of_resizable ? of_resizable->meaning : NULL);
    json_append_member(json, "missing", text ? text->missing : NULL);
    append_list(json, "remedies", &remedies);
}

static const cJSON *part_of(const cJSON *rows, const char *name)
{
    const cJSON *part = json_member(rows, name);

    return cJSON_IsNull(part) ? NULL : part;
}

int advice_append(const cJSON *rows, const char *resize_mode, struct buffer *json)
{
    struct advice advice = {
        .volume = part_of(rows, "volume"),
        .mapping = part_of(rows, "mapping"),
        .sandbox = part_of(rows, "sandbox"),
        .layers = part_of(rows, "layers"),
        .resize = part_of(rows, "resize"),
        .cleanup = part_of(rows, "cleanup"),
        .judged = part_of(rows, "judged"),
        .resize_mode = resize_mode,
    };

    append_advice(&advice, json);
    say_device(&advice);
    say_block_claim(&advice);
    say_layers(&advice);
    say_hypervisor_size(&advice);
    say_guest(&advice);
    say_sandbox(&advice);
    say_group(&advice);
    say_resizable(&advice);
    say_attempts(&advice);
    say_judged(&advice);
    say_cleanup(&advice);
    append_list(json, "known", &advice.known);
    buffer_done(&advice.known);
    return buffer_error(json);
}
