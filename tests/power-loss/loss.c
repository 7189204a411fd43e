/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - see loss.h: the flushed bytes, and of the operations since what the kind of loss says.
 */
#include "tests/power-loss/loss.h"

#include "tests/power-loss/recording.h"

enum { SECTOR = 512, PAGE = 4096 };

const char *disk_loss_name(enum disk_loss loss)
{
    static const char *const names[] = {
        [DISK_KEEPS_ALL] = "all kept",         [DISK_KEEPS_FLUSHED] = "only what was flushed",
        [DISK_MIXES_512] = "sectors of 512",   [DISK_MIXES_4096] = "sectors of 4,096",
        [DISK_REORDERS] = "writes reordered",  [DISK_TEARS_LAST] = "last write torn",
        [DISK_GARBLES] = "sectors with noise", [DISK_LIES] = "flushes ignored"};

    return names[loss];
}

uint64_t disk_random(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t disk_random_below(uint64_t *seed, size_t bound)
{
    return (size_t)(disk_random(seed) % bound);
}

static const struct operation *pending_at(const struct cut_file *file, size_t i)
{
    return recording_at(file->pending->index[i]);
}

/* ---- some sectors ---------------------------------------------------------------------------- */

struct mixing {
    size_t sector;
    bool noise;
    uint64_t *seed;
    unsigned
        *touched; /* by sector: how many operations there are on it, then how many of them last */
    unsigned *seen;
};

void loss_fill_noise(uint8_t *bytes, size_t length, uint64_t *seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)disk_random(seed);
}

/* The part of an operation that falls into one sector. */
static void apply_part(struct content *content, const struct operation *operation, size_t from,
                       size_t to, struct mixing *mixing)
{
    if (operation->kind == TRUNCATE)
        memset(content->bytes + from, 0, to - from);
    else if (mixing->noise && disk_random_below(mixing->seed, 4) == 0)
        loss_fill_noise(content->bytes + from, to - from, mixing->seed);
    else
        memcpy(content->bytes + from, operation->bytes + (from - operation->offset), to - from);
}

/* An operation sector by sector: counted (content NULL), or applied where it lasts. */
static void mix_operation(struct content *content, const struct operation *operation, size_t most,
                          struct mixing *mixing)
{
    bool cuts = operation->kind == TRUNCATE;
    size_t from = cuts ? operation->length : operation->offset;
    size_t end = cuts ? most : operation->offset + operation->length;

    while (from < end) {
        size_t sector = from / mixing->sector, to = (sector + 1) * mixing->sector;

        to = to < end ? to : end;
        if (!content)
            mixing->touched[sector]++;
        else if (++mixing->seen[sector] <= mixing->touched[sector])
            apply_part(content, operation, from, to, mixing);
        from = to;
    }
}

static size_t length_after(size_t length, const struct operation *operation)
{
    size_t end = operation->offset + operation->length;

    if (operation->kind == TRUNCATE)
        return operation->length;
    return end > length ? end : length;
}

/* Its lengths are states as well: one that it had, and the largest. */
static size_t pick_length(const struct cut_file *file, uint64_t *seed, size_t *ret_most)
{
    size_t length = file->base->length, picked = length, most = length;
    size_t choice = disk_random_below(seed, file->pending->count + 1);

    for (size_t i = 0; i < file->pending->count; i++) {
        length = length_after(length, pending_at(file, i));
        most = length > most ? length : most;
        if (i + 1 == choice)
            picked = length;
    }
    *ret_most = most;
    return picked;
}

static void mix(struct content *content, const struct cut_file *file, size_t sector, bool noise,
                uint64_t *seed)
{
    struct mixing mixing = {.sector = sector, .noise = noise, .seed = seed};
    size_t most, length = pick_length(file, seed, &most), sectors = most / sector + 1;

    mixing.touched = calloc(sectors, sizeof(unsigned));
    mixing.seen = calloc(sectors, sizeof(unsigned));
    must(mixing.touched && mixing.seen, "memory");
    content_resize(content, most);
    for (size_t i = 0; i < file->pending->count; i++)
        mix_operation(NULL, pending_at(file, i), most, &mixing);
    for (size_t i = 0; i < sectors; i++)
        mixing.touched[i] = (unsigned)disk_random_below(seed, mixing.touched[i] + 1);
    for (size_t i = 0; i < file->pending->count; i++)
        mix_operation(content, pending_at(file, i), most, &mixing);
    content_resize(content, length);
    free(mixing.touched);
    free(mixing.seen);
}

static void reorder(struct content *content, const struct cut_file *file, uint64_t *seed)
{
    for (size_t i = 0; i < file->pending->count; i++)
        if (disk_random_below(seed, 2))
            content_apply(content, pending_at(file, i));
}

/* Of a write that was under way when the power went, the sectors before one of them, or from it. */
static void tear(struct content *content, const struct operation *operation, uint64_t *seed)
{
    size_t end = operation->offset + operation->length;
    size_t first = operation->offset / SECTOR, sectors = (end - 1) / SECTOR - first + 1;
    size_t at = (first + disk_random_below(seed, sectors + 1)) * SECTOR;

    at = at < operation->offset ? operation->offset : at > end ? end : at;
    if (disk_random_below(seed, 2))
        content_write(content, operation->offset, operation->bytes, at - operation->offset);
    else
        content_write(content, at, operation->bytes + (at - operation->offset), end - at);
}

static void keep_all(struct content *content, const struct cut_file *file, bool torn,
                     uint64_t *seed)
{
    for (size_t i = 0; i < file->pending->count; i++) {
        const struct operation *operation = pending_at(file, i);
        bool is_last = operation == recording_at(file->position - 1);

        if (torn && is_last && operation->kind == WRITE)
            tear(content, operation, seed);
        else
            content_apply(content, operation);
    }
}

/* From its beginning on, whatever was flushed. */
static void lie(struct content *content, const struct cut_file *file, uint64_t *seed)
{
    content_resize(content, 0);
    for (size_t i = 0; i < file->position; i++) {
        const struct operation *operation = recording_at(i);

        if (operation->file == file->number &&
            (operation->kind == WRITE || operation->kind == TRUNCATE) &&
            disk_random_below(seed, 16))
            content_apply(content, operation);
    }
}

void loss_leave(struct content *content, const struct cut_file *file, enum disk_loss loss,
                uint64_t *seed)
{
    content_resize(content, 0);
    content_write(content, 0, file->base->bytes, file->base->length);
    switch (loss) {
    case DISK_KEEPS_ALL:
    case DISK_TEARS_LAST:
        keep_all(content, file, loss == DISK_TEARS_LAST, seed);
        break;
    case DISK_MIXES_512:
    case DISK_GARBLES:
        mix(content, file, SECTOR, loss == DISK_GARBLES, seed);
        break;
    case DISK_MIXES_4096:
        mix(content, file, PAGE, false, seed);
        break;
    case DISK_REORDERS:
        reorder(content, file, seed);
        break;
    case DISK_LIES:
        lie(content, file, seed);
        break;
    case DISK_KEEPS_FLUSHED:
    default:
        break;
    }
}
