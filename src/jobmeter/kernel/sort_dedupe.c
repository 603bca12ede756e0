/* Rows of many sections put in order at once: by the place of their series, then by time, of equal ones the last.
 *
 * A section has runs of one series each. Every run is copied behind those of its series that came before; only series
 * whose rows do not ascend then are sorted.
 */
#include <string.h>

#include "common.h"

/* Numbers each pair of a job and a series, from 0 in the order in which they first came. slots: int32[mask + 1], a power
   of two above count, filled with -1; key: two numbers that nobody can guess, the second one odd. first gets where each
   pair came first, number the number of each. Gives how many there are. */
EXPORTED int64_t jobmeter_sort_number(
    const uint64_t *job, const uint64_t *series, int64_t count, const uint64_t *key, int32_t *slots, int64_t mask,
    int64_t *first, int64_t *number) {
    int64_t known = 0;
    for (int64_t at = 0; at < count; at++) {
        uint64_t mixed = (series[at] ^ key[0]) * key[1];
        mixed = (mixed ^ (mixed >> 32) ^ job[at]) * key[1];
        int64_t slot = (int64_t)(mixed >> 32) & mask;
        while (slots[slot] >= 0 && (series[first[slots[slot]]] != series[at] || job[first[slots[slot]]] != job[at]))
            slot = (slot + 1) & mask;
        if (slots[slot] < 0) {
            first[known] = at;
            slots[slot] = (int32_t)known++;
        }
        number[at] = slots[slot];
    }
    return known;
}

/* The sections, one element of each array for each: its runs and rows; slots: int64[k], the place of the series of each
   run. */
struct Sections {
    int64_t size;
    const int64_t *runs;
    const int64_t *rows;
    const int64_t *const *slots;
    const int64_t *const *counts;
    const int64_t *const *time;
    const uint64_t *const *value;
};

/* Rows in order: of slot s those from ends[s] - sizes[s] to ends[s]. origin: of which section each is, or none. */
struct Ordered {
    int64_t slots;
    int64_t *ends;
    int64_t *sizes;
    int64_t *time;
    uint64_t *value;
    uint32_t *origin;
};

/* sizes: int64[slots], zeros. Gives 1 if a run has another slot, 2 if the counts of a section are not its rows, else 0. */
EXPORTED int64_t jobmeter_sort_count(const struct Sections *from, int64_t slots, int64_t *sizes) {
    for (int64_t section = 0; section < from->size; section++) {
        int64_t left = from->rows[section];
        for (int64_t run = 0; run < from->runs[section]; run++) {
            const int64_t slot = from->slots[section][run], count = from->counts[section][run];
            if (slot < 0 || slot >= slots) return 1;
            if (count < 1 || count > left) return 2;
            sizes[slot] += count;
            left -= count;
        }
        if (left) return 2;
    }
    return 0;
}

/* Puts all rows into their slots, in the order in which they came. ends holds where each slot begins, and becomes where
   it ends. Gives 1 where the rows of every slot ascend. */
EXPORTED int64_t jobmeter_sort_place(const struct Sections *from, struct Ordered *to) {
    int64_t ascend = 1;
    for (int64_t section = 0; section < from->size; section++) {
        const int64_t *time = from->time[section];
        const uint64_t *value = from->value[section];
        for (int64_t run = 0; run < from->runs[section]; run++) {
            const int64_t slot = from->slots[section][run], count = from->counts[section][run];
            const int64_t at = to->ends[slot];
            int64_t wrong = 0;
            for (int64_t row = 0; row < count; row++) {
                to->time[at + row] = time[row];
                to->value[at + row] = value[row];
            }
            for (int64_t row = 1; row < count; row++) wrong |= time[row] <= time[row - 1];
            /* The end of a slot that is empty is where the one before it ends. */
            if (wrong || (at > 0 && to->sizes[slot] > 0 && time[0] <= to->time[at - 1])) ascend = 0;
            if (to->origin) for (int64_t row = 0; row < count; row++) to->origin[at + row] = (uint32_t)section;
            to->ends[slot] += count;
            to->sizes[slot] += count;
            time += count;
            value += count;
        }
    }
    return ascend;
}

/* Stable, from the bottom up: order becomes that of the times. */
static int64_t *sorted(const int64_t *time, int64_t size, int64_t *order, int64_t *spare) {
    for (int64_t at = 0; at < size; at++) order[at] = at;
    for (int64_t width = 1; width < size; width *= 2) {
        for (int64_t low = 0; low < size; low += 2 * width) {
            int64_t middle = low + width < size ? low + width : size;
            int64_t high = low + 2 * width < size ? low + 2 * width : size;
            int64_t left = low, right = middle;
            for (int64_t at = low; at < high; at++) {
                int first = left < middle && (right >= high || time[order[left]] <= time[order[right]]);
                spare[at] = first ? order[left++] : order[right++];
            }
        }
        int64_t *held = order;
        order = spare;
        spare = held;
    }
    return order;
}

static void gather(uint64_t *numbers, int64_t size, const int64_t *order, uint64_t *spare) {
    for (int64_t at = 0; at < size; at++) spare[at] = numbers[order[at]];
    memcpy(numbers, spare, (size_t)size * sizeof *spare);
}

/* Sorts the slots that do not ascend, keeps of equal rows the last, and closes the gaps: sizes and ends become those of
   what is left. room: int64[3 * the largest size]. Gives how many rows are left. */
EXPORTED int64_t jobmeter_sort_rows(struct Ordered *rows, int64_t largest, int64_t *room) {
    int64_t out = 0;
    uint64_t *spare = (uint64_t *)(room + 2 * largest);
    for (int64_t slot = 0; slot < rows->slots; slot++) {
        const int64_t size = rows->sizes[slot], begin = rows->ends[slot] - size;
        int64_t *time = rows->time + begin;
        uint64_t *value = rows->value + begin;
        uint32_t *origin = rows->origin ? rows->origin + begin : 0;
        int64_t wrong = 0;
        for (int64_t row = 1; row < size; row++) wrong |= time[row] <= time[row - 1];
        if (wrong) {
            const int64_t *order = sorted(time, size, room, room + largest);
            gather((uint64_t *)time, size, order, spare);
            gather(value, size, order, spare);
            if (origin) {
                uint32_t *few = (uint32_t *)spare;
                for (int64_t row = 0; row < size; row++) few[row] = origin[order[row]];
                memcpy(origin, few, (size_t)size * sizeof *few);
            }
        }
        const int64_t first = out;
        for (int64_t row = 0; row < size; row++) {
            if (row + 1 < size && time[row + 1] == time[row]) continue;
            rows->time[out] = time[row];
            rows->value[out] = value[row];
            if (origin) rows->origin[out] = origin[row];
            out++;
        }
        rows->sizes[slot] = out - first;
        rows->ends[slot] = out;
    }
    return out;
}

/* Place of the first of size ascending times that is not before one. */
static int64_t lower_bound(const int64_t *time, int64_t size, int64_t from) {
    int64_t low = 0;
    while (low < size) {
        const int64_t middle = low + (size - low) / 2;
        if (time[middle] < from) low = middle + 1;
        else size = middle;
    }
    return low;
}

/* Samples of one owner between two multiples of the step. */
struct Bucket {
    uint64_t owner;
    int64_t time, samples, first_time, last_time;
    double sum, least, most, first, last;
};

/* The samples in [start, end) of some runs in buckets of a step. The runs are sorted by owner, then by first time. An
   owner whose times do not ascend from run to run, or whose buckets lack room, gets no buckets; wrong: uint8[runs], set
   at one of its runs. Gives the number of buckets. */
EXPORTED int64_t jobmeter_sort_bucket(
    int64_t runs, const uint64_t *owner, const int64_t *counts, const int64_t *const *times,
    const double *const *values, int64_t start, int64_t end, int64_t step, int64_t room, struct Bucket *to,
    uint8_t *wrong) {
    int64_t size = 0, begin = 0, until = INT64_MIN, newest = INT64_MIN, failed = 0;
    for (int64_t one = 0; one < runs; one++) {
        const int64_t *time = times[one], count = counts[one];
        const double *value = values[one];
        if (one == 0 || owner[one] != owner[one - 1]) {
            begin = size;
            until = newest = INT64_MIN;
            failed = 0;
        }
        if (failed) continue;
        failed = time[0] <= newest;
        for (int64_t row = 1; row < count; row++) failed |= time[row] <= time[row - 1];
        newest = time[count - 1];
        const int64_t last = lower_bound(time, count, end);
        for (int64_t row = lower_bound(time, count, start); !failed && row < last;) {
            if (time[row] >= until) {
                failed = size >= room;
                if (failed) break;
                const int64_t from = time[row] / step * step;
                to[size++] = (struct Bucket){
                    owner[one], from, 0, time[row], 0, 0, value[row], value[row], value[row], 0};
                until = from + step;
            }
            struct Bucket *bucket = to + size - 1;
            double sum = bucket->sum, least = bucket->least, most = bucket->most;
            int64_t next = row + 1;
            while (next < last && time[next] < until) next++;
            bucket->samples += next - row;
            for (; row < next; row++) {
                sum += value[row];
                least = value[row] < least ? value[row] : least;
                most = value[row] > most ? value[row] : most;
            }
            bucket->last_time = time[row - 1];
            bucket->sum = sum;
            bucket->least = least;
            bucket->most = most;
            bucket->last = value[row - 1];
        }
        if (failed) {
            wrong[one] = 1;
            size = begin;
        }
    }
    return size;
}
