/* SPDX-License-Identifier: Apache-2.0 */
/* bind.c - the decision table for mappings.
 *
 * First whether exactly one sandbox has the volume, then whether the VMM's device can still be the
 * one that the path leads to. If records contradict each other, an open binding is kept, because
 * the VMM holds its device whatever the path does, and none is begun.
 */
#include "reconciler/decide/bind.h"

static struct binding say(enum bind_action action, bool mismatch)
{
    return (struct binding){action, mismatch};
}

static struct binding end(const struct bind_facts *facts, bool mismatch)
{
    return say(facts->binding == BIND_NONE ? BIND_NOTHING : BIND_CLOSE, mismatch);
}

/* The binding is with the sandbox that has the volume. */
static struct binding bind_here(const struct bind_facts *facts)
{
    if (facts->disk == BIND_SAME_DISK || facts->disk == BIND_REPLACED_DISK)
        return say(BIND_KEEP, facts->contradicted || facts->disk == BIND_REPLACED_DISK);
    return facts->contradicted ? say(BIND_KEEP, true) : say(BIND_OPEN, false);
}

struct binding bind_decide(const struct bind_facts *facts)
{
    if (!facts->present || facts->sandbox != BIND_ONE_SANDBOX)
        return end(facts, false);
    if (facts->device == BIND_DEVICE_MISSING)
        return facts->binding == BIND_HERE ? say(BIND_KEEP, false) : end(facts, false);
    if (facts->device == BIND_DEVICE_UNSUITABLE)
        return end(facts, false);
    if (facts->binding == BIND_HERE)
        return bind_here(facts);
    return facts->contradicted ? end(facts, true) : say(BIND_OPEN, false);
}

const char *bind_action_name(enum bind_action action)
{
    static const char *const names[] = {"nothing", "open", "close", "keep"};

    return names[action];
}
