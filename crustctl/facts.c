/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - the facts about a volume, in sentences.
 *
 * One function per subject; each states what is known or, where it matters, that nothing is.
 * `sayers` lists them in the order in which they are shown.
 */
#include "crustctl/facts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "model/reason.h"
#include "model/runtime.h"
#include "model/stale_reason.h"

enum { LAYERS_SAID = 6 }; /* crustctl layers has them all */

static void say(struct facts *facts, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct facts *facts, const char *format, ...)
{
    va_list arguments;

    if (facts->count == FACTS_MAX)
        return;
    va_start(arguments, format);
    (void)vsnprintf(facts->fact[facts->count++], FACT_BYTES, format, arguments);
    va_end(arguments);
}

/* Whether a text is in one of the facts already: several rows may have it. */
static bool is_said(const struct facts *facts, const char *text)
{
    for (unsigned i = 0; i < facts->count; i++)
        if (strstr(facts->fact[i], text))
            return true;
    return false;
}

static void say_problem(const struct dossier *dossier, const struct config *config,
                        struct facts *facts)
{
    const char *problem = row_text(dossier->volume, "problem");
    const char *status = row_text(dossier->volume, "status");

    (void)config;
    /* Else the reason's meaning says so. */
    if (*status && strcmp(status, "present") != 0 &&
        strcmp(row_reason(dossier->volume), "none") == 0)
        say(facts, "The volume's metadata is %s.", status);
    if (*problem)
        say(facts, "Problem: %s", problem);
}

static void say_device(const struct dossier *dossier, const struct config *config,
                       struct facts *facts)
{
    const char *device = row_text(dossier->volume, "device");
    const char *kernel = dossier->binding ? row_text(dossier->binding, "device") : "";
    char size[TEXT_SIZE_BYTES];
    bool known;
    const uint64_t bytes = row_number(dossier->volume, "device_bytes", &known);

    (void)config;
    text_size(bytes, size);
    if (!*device)
        return;
    /* After a rewrite the binding has the device that the VM was given, not what this path names.
     */
    if (reason_from_name(row_text(dossier->volume, "reason")) == REASON_IDENTITY_MISMATCH)
        kernel = "";
    if (*kernel && strcmp(kernel, device) != 0)
        say(facts, "Its device is %s, which leads to %s.", device, kernel);
    else
        say(facts, "Its device is %s.", device);
    if (known)
        say(facts, "On the host the device has %s (%" PRIu64 " bytes).", size, bytes);
}

static void say_layers(const struct dossier *dossier, const struct config *config,
                       struct facts *facts)
{
    const cJSON *layer = NULL;
    unsigned count = 0;

    (void)config;
    cJSON_ArrayForEach(layer, dossier->layers)
    {
        const char *state = row_text(layer, "state"), *label = row_text(layer, "name");
        char size[TEXT_SIZE_BYTES];

        if (count++ == LAYERS_SAID)
            break;
        text_size(row_number(layer, "size_bytes", NULL), size);
        say(facts, "%s %s (%s%s%s) has %s%s.", count == 1 ? "Its storage, from the top:" : "Then",
            row_text(layer, "device"), row_text(layer, "kind"), *label ? " " : "", label, size,
            strcmp(state, "stale") == 0     ? " and has announced a new size"
            : strcmp(state, "pending") == 0 ? " and has not followed its lower device"
                                            : "");
    }
}

static void say_hypervisor_size(const struct dossier *dossier, const struct config *config,
                                struct facts *facts)
{
    char size[TEXT_SIZE_BYTES], difference[TEXT_SIZE_BYTES];
    bool known;
    const uint64_t bytes = row_number(dossier->volume, "hypervisor_bytes", &known);
    const uint64_t device = row_number(dossier->volume, "device_bytes", NULL);

    (void)config;
    text_size(bytes, size);
    if (!known) {
        if (dossier->sandbox)
            say(facts, "Which size the hypervisor has is not known.");
        return;
    }
    if (bytes == device) {
        say(facts, "The hypervisor has the same size.");
        return;
    }
    text_size(device > bytes ? device - bytes : bytes - device, difference);
    say(facts, "The hypervisor has %s (%" PRIu64 " bytes), %s %s than the device.", size, bytes,
        difference, device > bytes ? "less" : "more");
}

static void say_guest_size(const struct dossier *dossier, const struct config *config,
                           struct facts *facts)
{
    char size[TEXT_SIZE_BYTES];
    bool known;
    const uint64_t bytes = row_number(dossier->volume, "guest_bytes", &known);

    (void)config;
    text_size(bytes, size);
    if (known)
        say(facts,
            "The guest's file system reports %s in total; its own structures are not in "
            "that.",
            size);
}

static void say_usage(const struct dossier *dossier, const struct config *config,
                      struct facts *facts)
{
    char used[TEXT_SIZE_BYTES], available[TEXT_SIZE_BYTES], time[TEXT_TIME_BYTES];
    const char *condition = row_text(dossier->volume, "condition");
    const char *message = row_text(dossier->volume, "condition_message");
    bool known;

    (void)config;
    text_size(row_number(dossier->volume, "used_bytes", &known), used);
    text_size(row_number(dossier->volume, "available_bytes", NULL), available);
    text_time(row_text(dossier->volume, "stats_at"), time);
    if (known)
        say(facts, "At %s UTC the guest had %s of it in use and %s available.", time, used,
            available);
    if (strcmp(condition, "abnormal") == 0)
        say(facts,
            "At %s UTC the guest said that the file system is abnormal%s%s. Look into the guest's "
            "kernel log; stop the pod before the file system is checked.",
            time, *message ? ": " : "", message);
}

static void say_sandbox(const struct dossier *dossier, const struct config *config,
                        struct facts *facts)
{
    const cJSON *sandbox = dossier->sandbox;

    (void)config;
    if (!sandbox)
        return;
    say(facts, "It is used by sandbox %s (%s on %s, process %" PRIu64 ").",
        row_text(sandbox, "sandbox_id"), row_text(sandbox, "runtime"),
        row_text(sandbox, "hypervisor"), row_number(sandbox, "vmm_pid", NULL));
    if (*row_text(sandbox, "pod_name"))
        say(facts, "The pod is %s/%s.", row_text(sandbox, "pod_namespace"),
            row_text(sandbox, "pod_name"));
    if (*row_text(sandbox, "control_socket"))
        say(facts, "crustd speaks to the hypervisor on %s.", row_text(sandbox, "control_socket"));
    else
        say(facts, "crustd has no socket to speak to the hypervisor on.");
}

static void say_binding(const struct dossier *dossier, const struct config *config,
                        struct facts *facts)
{
    const cJSON *binding = dossier->binding;

    (void)config;
    if (!binding)
        return;
    /* Until the hypervisor's list has the drive, its name is the one that the runtime recorded. */
    if (*row_text(binding, "drive_id"))
        say(facts, "%s calls the drive %s.",
            strcmp(row_text(binding, "attached"), "yes") == 0 ? "The hypervisor" : "Kata",
            row_text(binding, "drive_id"));
    if (*row_text(binding, "guest_path"))
        say(facts, "The guest has it at %s.", row_text(binding, "guest_path"));
}

/* The evidence, for the reasons that rest on it. */
static void say_evidence(const struct dossier *dossier, const struct config *config,
                         struct facts *facts)
{
    const char *evidence = row_text(dossier->volume, "evidence");

    (void)config;
    if (*evidence)
        say(facts, "Evidence: %s.", evidence);
}

static void say_policy(const struct dossier *dossier, const struct config *config,
                       struct facts *facts)
{
    const char *wish = json_string(json_member(dossier->volume, "metadata"), "crust.resize");

    if (wish)
        say(facts, "The volume's own metadata say crust.resize = %s.", wish);
    if (config->resize.mode != RESIZE_GROW)
        say(facts, "The configuration says resize.mode = %s.",
            config->resize.mode == RESIZE_NEVER ? "never" : "observe");
}

/* Whether a resize would succeed now. */
static void say_resizable(const struct dossier *dossier, const struct config *config,
                          struct facts *facts)
{
    const char *answer = row_text(dossier->volume, "resizable");
    const char *reason = row_text(dossier->volume, "resizable_reason");
    const struct explanation *text = reason_explain_resizable(reason_from_name(reason));
    const char *meaning = text ? text->meaning : "";

    (void)config;
    if (strcmp(reason, row_reason(dossier->volume)) == 0) {
        if (state_from_name(row_text(dossier->volume, "state")) == STATE_BLOCKED)
            return; /* its meaning says it all */
        meaning = "";
    }
    if (strcmp(answer, "yes") == 0)
        say(facts, "A resize would reach the file system: the hypervisor has the drive and can "
                   "resize it, and the guest is able to follow.");
    else if (strcmp(answer, "no") == 0)
        say(facts, "A resize would not reach the file system (%s)%s%s", reason,
            *meaning ? ". " : ".", meaning);
    else if (strcmp(answer, "unknown") == 0)
        say(facts, "Whether a resize would reach the file system is not known (%s)%s%s", reason,
            *meaning ? ". " : ".", meaning);
}

/* Kata's Go runtime has the guest change the owner; its Rust runtime reads no metadata at all. */
static void say_group(const struct dossier *dossier, const struct config *config,
                      struct facts *facts)
{
    const cJSON *metadata = json_member(dossier->volume, "metadata");
    const char *group = json_string(metadata, "fsGroup");
    const char *policy = json_string(metadata, "fsGroupChangePolicy");
    const enum kata_runtime runtime =
        runtime_from_name(dossier->sandbox ? row_text(dossier->sandbox, "runtime") : "");

    (void)config;
    if (!group)
        return;
    say(facts, "Its files are to belong to group %s (fsGroup%s%s).", group, policy ? ", " : "",
        policy ? policy : "");
    if (runtime == RUNTIME_KATA_RS)
        say(facts,
            "This sandbox's runtime, Kata's in Rust, ignores fsGroup: change the owner in an "
            "init container, or use Kata's Go runtime.");
    else if (runtime != RUNTIME_KATA_GO)
        say(facts, "Kata's Go runtime sees to that; its Rust runtime ignores fsGroup.");
}

/* A resize whose attempts failed has the reason for it. */
static bool is_settling(const cJSON *volume)
{
    return state_from_name(row_text(volume, "state")) == STATE_HOST_GROWN;
}

static void say_attempts(const struct dossier *dossier, const struct config *config,
                         struct facts *facts)
{
    const cJSON *resize = dossier->resize;
    const char *next = row_text(dossier->volume, "next_attempt_at");
    char time[TEXT_TIME_BYTES];

    (void)config;
    if (resize && !*row_text(resize, "finished_at")) {
        text_time(row_text(resize, "detected_at"), time);
        say(facts, "The resize was noticed at %s UTC; attempts so far: %" PRIu64 ".", time,
            row_number(resize, "attempts", NULL));
        if (*row_text(resize, "error") && !is_said(facts, row_text(resize, "error")))
            say(facts, "The last error: %s", row_text(resize, "error"));
    }
    text_time(next, time);
    if (*next)
        say(facts,
            is_settling(dossier->volume)
                ? "It is acted on at %s UTC, if the size stays the same until then."
                : "It is tried again at %s UTC.",
            time);
}

static void say_found(const cJSON *cleanup, const char *member, const char *label,
                      struct facts *facts)
{
    const char *text = json_string(json_member(cleanup, "evidence"), member);

    if (text && !is_said(facts, text))
        say(facts, "%s: %s.", label, text);
}

/* The reason's meaning, its remedy, and the evidence. */
static void say_stale_reason(const cJSON *row, struct facts *facts)
{
    const enum stale_reason reason = stale_reason_from_name(row_text(row, "reason"));
    const char *remedy = stale_reason_remedy(reason);

    if (remedy && !is_said(facts, remedy))
        say(facts, "%s", remedy);
    say_found(row, "metadata_problem", "What is wrong with it", facts);
    say_found(row, "problem", "What crustd cannot see", facts);
}

/* A volume that works: nobody asks what keeps its metadata. */
static bool is_plainly_in_use(const struct dossier *dossier, enum stale_reason reason)
{
    return reason == STALE_REASON_IN_USE &&
           strcmp(row_text(dossier->volume, "state"), "in_sync") == 0;
}

static void say_judged(const struct dossier *dossier, const struct config *config,
                       struct facts *facts)
{
    const cJSON *row = NULL;

    (void)config;
    cJSON_ArrayForEach(row, dossier->judged)
    {
        const char *decision = row_text(row, "decision"), *reason = row_text(row, "reason");
        const char *meaning = stale_reason_meaning(stale_reason_from_name(reason));
        const char *file = json_string(json_member(row, "evidence"), "file");
        const enum stale_reason waits_for = stale_reason_from_name(row_text(row, "waits_for"));

        if (is_plainly_in_use(dossier, stale_reason_from_name(reason)))
            continue;
        say(facts, "Its metadata%s%s, judged now: %s, %s%s%s", file ? ", file " : "",
            file ? file : "", decision, reason, meaning ? ". " : "", meaning ? meaning : "");
        if (*row_text(row, "waits_for"))
            say(facts, "A crustctl gc would remove it; crustd itself keeps it: %s. %s",
                row_text(row, "waits_for"), waits_for ? stale_reason_meaning(waits_for) : "");
        say_stale_reason(row, facts);
    }
}

static void say_cleanup(const struct dossier *dossier, const struct config *config,
                        struct facts *facts)
{
    const char *reason = row_text(dossier->cleanup, "reason");
    const char *meaning = stale_reason_meaning(stale_reason_from_name(reason));
    char time[TEXT_TIME_BYTES];

    (void)config;
    if (!dossier->cleanup)
        return;
    text_time(row_text(dossier->cleanup, "at"), time);
    if (meaning && is_said(facts, meaning))
        meaning = NULL;
    say(facts, "Last put on record about its metadata: found stale, and %s at %s UTC: %s%s%s%s",
        row_text(dossier->cleanup, "decision"), time, reason, meaning ? ". " : "",
        meaning ? meaning : "", meaning ? "" : ".");
    if (!dossier->judged)
        say_stale_reason(dossier->cleanup, facts);
    if (strcmp(row_text(dossier->cleanup, "decision"), "removed") == 0)
        say(facts, "crustctl restore %" PRIu64 " puts it back while the trash has it.",
            row_number(dossier->cleanup, "cleanup_id", NULL));
}

typedef void sayer(const struct dossier *dossier, const struct config *config, struct facts *facts);

static sayer *const sayers[] = {
    say_problem, say_device,    say_layers,   say_hypervisor_size, say_guest_size,
    say_usage,   say_sandbox,   say_binding,  say_group,           say_evidence,
    say_policy,  say_resizable, say_attempts, say_judged,          say_cleanup,
};

void facts_collect(const struct dossier *dossier, const struct config *config,
                   struct facts *ret_facts)
{
    ret_facts->count = 0;
    for (size_t i = 0; i < array_length(sayers); i++)
        sayers[i](dossier, config, ret_facts);
}
