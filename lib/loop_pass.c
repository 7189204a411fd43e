/* SPDX-License-Identifier: Apache-2.0 */
/* loop_pass.c - see loop_pass.h.
 *
 * Elapsed time is what clients wait for; processor time is what does not depend on how busy the
 * machine and its disks are. CLOCK_MONOTONIC: a machine that sleeps is no stall.
 */
#include "lib/loop_pass.h"

#include <stdio.h>

#include "lib/clock.h"
#include "lib/log.h"

static const uint64_t STALL_NS = NSEC_PER_SEC;

static void end_work(struct loop_pass *pass, uint64_t now_ns)
{
    pass->work.elapsed_ns = now_ns - pass->announced_ns;
    if (pass->work.what && pass->work.elapsed_ns > pass->longest_work.elapsed_ns)
        pass->longest_work = pass->work;
    pass->work.what = NULL;
    pass->announced_ns = now_ns;
}

static void log_stall(const struct loop_pass *pass, uint64_t elapsed_ns)
{
    const struct loop_work *work = &pass->longest_work;

    if (work->what)
        log_warning(NULL, "the event loop was blocked for %.1f s, %.1f s of which went into %s%s%s",
                    (double)elapsed_ns / (double)NSEC_PER_SEC,
                    (double)work->elapsed_ns / (double)NSEC_PER_SEC, work->what,
                    work->name[0] ? " " : "", work->name);
    else
        log_warning(NULL, "the event loop was blocked for %.1f s",
                    (double)elapsed_ns / (double)NSEC_PER_SEC);
}

void loop_pass_begin(struct loop_pass *pass)
{
    pass->began_ns = pass->announced_ns = clock_monotonic();
    if (!pass->processor_ns)
        pass->processor_ns = clock_processor();
    pass->work.what = pass->longest_work.what = NULL;
    pass->longest_work.elapsed_ns = 0;
}

uint64_t loop_pass_elapsed(const struct loop_pass *pass)
{
    return pass->began_ns ? clock_monotonic() - pass->began_ns : 0;
}

void loop_pass_end(struct loop_pass *pass)
{
    uint64_t now_ns, processor_ns, elapsed_ns;

    if (!pass->began_ns)
        return;
    now_ns = clock_monotonic();
    processor_ns = clock_processor();
    elapsed_ns = now_ns - pass->began_ns;
    end_work(pass, now_ns);
    if (elapsed_ns > pass->longest_ns)
        pass->longest_ns = elapsed_ns;
    if (processor_ns - pass->processor_ns > pass->longest_processor_ns)
        pass->longest_processor_ns = processor_ns - pass->processor_ns;
    pass->processor_ns = processor_ns;
    pass->began_ns = 0;
    if (elapsed_ns >= STALL_NS)
        log_stall(pass, elapsed_ns);
}

void loop_pass_announce(struct loop_pass *pass, const char *what, const char *name)
{
    end_work(pass, clock_monotonic());
    pass->work.what = what;
    (void)snprintf(pass->work.name, sizeof(pass->work.name), "%s", name ? name : "");
}
