/* A stand-in for NVIDIA's libnvidia-ml.so.1 that behaves as nvml.h says, for the real binding to load.

   The library maps the file FAKE_NVML, in which a test sets the answers of each device, error codes of calls, and
   blocking calls. Handles become invalid with nvmlShutdown. Two GPM samples make a value only if both belong to one
   device and one session. `misuse` counts errors of the caller. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef FAKE_VERSION
#define FAKE_VERSION "570.86.15"
#endif
#define EXPORT __attribute__((visibility("default")))
#define DEVICES 16
#define PROCESSES 16
#define FIELDS 128
#define METRICS 128
#define SAMPLES 256
#define SESSIONS 64
#define INSTANCES 8
#define EVENTS 64
#define ACCOUNTED 32

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, TIMEOUT = 10, LIB_RM_VERSION_MISMATCH = 18 };

/* The calls of a device, in the order of `Call` in __init__.py. EVERY stands for all calls that take a handle. */
enum { EVERY, HANDLE, UUID, MINOR, NAME, UTILIZATION, MEMORY, MEMORY_V2, POWER, POWER_LIMIT, ENERGY, TEMPERATURE, FAN,
       CLOCK, MAX_CLOCK, P_STATE, ENCODER, DECODER, ECC, REMAPPED, REPLAYS, FIELD_VALUES, GPM_SUPPORT, GPM_SAMPLE,
       PROCESS_LIST, MPS_LIST, PROCESS_UTILIZATION, PROCESS_LIST_V2, MPS_LIST_V2, LINK, MAX_LINK, PCI, SERIAL, MIG, SAMPLED, MARGIN,
       SRAM, FABRIC, LINK_STATE, EVENT_TYPES, REGISTER, SPARE_ROWS, ACCOUNTING_MODE,
       ACCOUNTING, CALLS };
/* Calls of the library itself. */
enum { INIT, SHUTDOWN, COUNT, GPM_METRICS, EVENT_SET, EVENT_WAIT, LIBRARY_CALLS };

struct process { uint32_t pid, mps, busy, share; uint64_t memory, stamp; uint32_t instance, pad; };
struct instance { char uuid[96], name[96]; uint32_t there, instance, place, slices; uint64_t used, total; double share; };
struct accounted { uint32_t pid, running, busy, pad; uint64_t time, start; };
struct field { uint32_t id, scope; int32_t type, code; union { double d; uint32_t ui; uint64_t ull; int64_t sll; int32_t si; } value; };
struct metric { double value; int32_t code, pad; };
struct device {
    char uuid[96], pci[32], name[96], serial[32];
    int32_t codes[CALLS];
    uint32_t blocks[CALLS], counts[CALLS];
    uint32_t minor, gpm_supported, utilization[2], power, power_limit, temperature, fan, clock[2], max_clock, p_state;
    uint32_t encoder, decoder, remapped[4], replays, processes, fields, pad, link[2], max_link[2];
    uint64_t used, total, reserved, energy, joules, ecc[2];
    uint32_t mig, margin, sram[4], fabric, links_down, sampled[2][8], sampled_at, event_types, spare[5], gpm_end;
    uint32_t accounting, accounted_ever;
    struct accounted accounted[ACCOUNTED];
    struct instance instance[INSTANCES];
    struct process process[PROCESSES];
    struct field field[FIELDS];
    struct metric metric[METRICS];
};
struct event { uint64_t type, data; uint32_t index, instance, place, pad; };
struct control {
    char driver[32];
    int32_t codes[LIBRARY_CALLS];
    uint32_t blocks[LIBRARY_CALLS], counts[LIBRARY_CALLS];
    uint32_t count, idle_code, misuse, samples, sets, waiting, happened, read, longest, asked;
    struct event event[EVENTS];
    struct device device[DEVICES];
};
struct handle { uint32_t session, index, part; };  /* part: 0 is the GPU, N + 1 its instance N */
struct sample { uint32_t used, filled, session, index, turn, part; };

static struct control *control;
static struct handle handles[SESSIONS][DEVICES], parts[SESSIONS][DEVICES][INSTANCES];
static struct sample samples[SAMPLES];
static uint32_t session, open_count, turn;

static struct control *map(void) {
    const char *path = getenv("FAKE_NVML");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return NULL;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return found == MAP_FAILED ? NULL : found;
}
static void count(uint32_t *counter) { __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST); }
static int misused(int code) { count(&control->misuse); return code; }
static void wait_for(volatile uint32_t *block) { while (*block) usleep(1000); }

/* Counts a call of the library, and returns its code. */
static int library_call(int call) {
    if (!control && !(control = map())) return DRIVER_NOT_LOADED;
    count(&control->counts[call]);
    wait_for(&control->blocks[call]);
    return control->codes[call];
}
/* Counts a call of a device, and returns its code; SUCCESS if it answers. */
static int enter(struct handle *handle, int call, struct device **found) {
    if (!control || !open_count) return UNINITIALIZED;
    if (!handle) return misused(INVALID_ARGUMENT);
    if (handle->session != session) return misused(INVALID_ARGUMENT);
    struct device *device = *found = &control->device[handle->index];
    count(&device->counts[call]);
    wait_for(&device->blocks[EVERY]);
    wait_for(&device->blocks[call]);
    if (handle->part && !device->instance[handle->part - 1].there) return misused(INVALID_ARGUMENT);
    int whole = call != UUID && call != NAME && call != MEMORY && call != MEMORY_V2 && call != PROCESS_LIST && call != MIG
                && call != MPS_LIST;
    int busy = call == UTILIZATION || call == PROCESS_UTILIZATION || call == ENCODER || call == DECODER || call == GPM_SAMPLE;
    if ((handle->part && whole) || (device->mig && busy)) return NOT_SUPPORTED;
    return device->codes[EVERY] ? device->codes[EVERY] : device->codes[call];
}
#define ENTER(call) \
    struct device *device; \
    int code = enter(handle, call, &device); \
    if (code) return code

EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
        case 4: return "Insufficient Permissions";
        case 15: return "GPU is lost";
        case 16: return "GPU requires reset";
        case 18: return "Driver/library version mismatch";
        case 19: return "In use by another client";
        default: return "an error of the fake";
    }
}
EXPORT uint64_t fake_control_size(void) { return sizeof(struct control); }

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = library_call(INIT);
    if (code) return code;
    if (!control->driver[0]) return DRIVER_NOT_LOADED;
    if (strcmp(control->driver, FAKE_VERSION)) return LIB_RM_VERSION_MISMATCH;
    if (!open_count++) {
        session++;
        for (uint32_t index = 0; index < DEVICES; index++)
            handles[session % SESSIONS][index] = (struct handle){session, index, 0};
    }
    return SUCCESS;
}
EXPORT int nvmlShutdown(void) {
    int code = library_call(SHUTDOWN);
    if (code) return code;
    if (!open_count) return UNINITIALIZED;
    open_count--;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *found) {
    if (!open_count) return UNINITIALIZED;
    int code = library_call(COUNT);
    if (code) return code;
    *found = control->count;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **found) {
    if (!control || !open_count) return UNINITIALIZED;
    if (index >= control->count) return INVALID_ARGUMENT;
    struct handle *handle = &handles[session % SESSIONS][index];
    ENTER(HANDLE);
    (void)device;
    *found = handle;
    return SUCCESS;
}

#define TEXT(name, call, member) \
    EXPORT int name(struct handle *handle, char *text, unsigned length) { \
        ENTER(call); \
        if (length < sizeof device->member) return INSUFFICIENT_SIZE; \
        memcpy(text, handle->part ? device->instance[handle->part - 1].member : device->member, sizeof device->member); \
        return SUCCESS; \
    }
TEXT(nvmlDeviceGetUUID, UUID, uuid)
TEXT(nvmlDeviceGetName, NAME, name)

EXPORT int nvmlDeviceGetSerial(struct handle *handle, char *text, unsigned length) {
    ENTER(SERIAL);
    if (!device->serial[0]) return NOT_SUPPORTED;
    if (length < 30) return INSUFFICIENT_SIZE;
    strncpy(text, device->serial, 29);
    return SUCCESS;
}
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    if (!control || !open_count) return UNINITIALIZED;
    if (length < sizeof control->driver) return INSUFFICIENT_SIZE;
    memcpy(text, control->driver, sizeof control->driver);
    return SUCCESS;
}

struct pci { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char address[32]; };
EXPORT int nvmlDeviceGetPciInfo_v3(struct handle *handle, struct pci *value) {
    ENTER(PCI);
    memset(value, 0, sizeof *value);
    memcpy(value->address, device->pci, sizeof value->address);
    return SUCCESS;
}

#define NUMBER(name, call, type, member) \
    EXPORT int name(struct handle *handle, type *value) { \
        ENTER(call); \
        *value = device->member; \
        return SUCCESS; \
    }
NUMBER(nvmlDeviceGetMinorNumber, MINOR, unsigned, minor)
NUMBER(nvmlDeviceGetPowerUsage, POWER, unsigned, power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, POWER_LIMIT, unsigned, power_limit)
NUMBER(nvmlDeviceGetFanSpeed, FAN, unsigned, fan)
NUMBER(nvmlDeviceGetPerformanceState, P_STATE, unsigned, p_state)
NUMBER(nvmlDeviceGetPcieReplayCounter, REPLAYS, unsigned, replays)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, LINK, unsigned, link[0])
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, LINK, unsigned, link[1])
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, MAX_LINK, unsigned, max_link[0])
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, MAX_LINK, unsigned, max_link[1])

EXPORT int nvmlDeviceGetTotalEnergyConsumption(struct handle *handle, unsigned long long *value) {
    ENTER(ENERGY);
    *value = device->energy += device->joules;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetTemperature(struct handle *handle, unsigned sensor, unsigned *value) {
    ENTER(TEMPERATURE);
    if (sensor) return INVALID_ARGUMENT;
    *value = device->temperature;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetUtilizationRates(struct handle *handle, unsigned *value) {
    ENTER(UTILIZATION);
    memcpy(value, device->utilization, sizeof device->utilization);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo(struct handle *handle, unsigned long long *value) {
    ENTER(MEMORY);
    value[0] = device->total;
    value[1] = device->total - device->used - device->reserved;
    value[2] = device->used + device->reserved;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(struct handle *handle, unsigned long long *value) {
    ENTER(MEMORY_V2);
    if (handle->part) {
        struct instance *part = &device->instance[handle->part - 1];
        value[1] = part->total, value[2] = 0, value[3] = part->total - part->used, value[4] = part->used;
        return SUCCESS;
    }
    value[1] = device->total;
    value[2] = device->reserved;
    value[3] = device->total - device->used - device->reserved;
    value[4] = device->used;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetClockInfo(struct handle *handle, unsigned type, unsigned *value) {
    ENTER(CLOCK);
    if (type != 1 && type != 2) return INVALID_ARGUMENT;
    *value = device->clock[type - 1];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMaxClockInfo(struct handle *handle, unsigned type, unsigned *value) {
    ENTER(MAX_CLOCK);
    if (type != 1) return INVALID_ARGUMENT;
    *value = device->max_clock;
    return SUCCESS;
}
#define CODEC(name, call, member) \
    EXPORT int name(struct handle *handle, unsigned *value, unsigned *period) { \
        ENTER(call); \
        *value = device->member; \
        *period = 167000; \
        return SUCCESS; \
    }
CODEC(nvmlDeviceGetEncoderUtilization, ENCODER, encoder)
CODEC(nvmlDeviceGetDecoderUtilization, DECODER, decoder)
EXPORT int nvmlDeviceGetTotalEccErrors(struct handle *handle, unsigned kind, unsigned counter, unsigned long long *value) {
    ENTER(ECC);
    if (kind > 1 || counter > 1) return INVALID_ARGUMENT;
    *value = device->ecc[kind];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetRemappedRows(struct handle *handle, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    ENTER(REMAPPED);
    *a = device->remapped[0], *b = device->remapped[1], *c = device->remapped[2], *d = device->remapped[3];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetRowRemapperHistogram(struct handle *handle, unsigned *value) {
    ENTER(SPARE_ROWS);
    memcpy(value, device->spare, sizeof device->spare);
    return SUCCESS;
}

struct field_value { uint32_t id, scope; int64_t stamp, latency; int32_t type, code; uint64_t value; };
EXPORT int nvmlDeviceGetFieldValues(struct handle *handle, int wanted, struct field_value *values) {
    ENTER(FIELD_VALUES);
    for (int at = 0; at < wanted; at++) {
        values[at].code = NOT_SUPPORTED;
        for (uint32_t one = 0; one < device->fields; one++) {
            struct field *field = &device->field[one];
            if (field->id != values[at].id || field->scope != values[at].scope) continue;
            values[at].code = field->code;
            values[at].type = field->type;
            memcpy(&values[at].value, &field->value, sizeof values[at].value);
        }
    }
    return SUCCESS;
}

struct process_info { unsigned pid; unsigned long long memory; unsigned gi, ci; };
static int list(struct handle *handle, int call, uint32_t mps, unsigned *room, struct process_info *infos) {
    ENTER(call);
    unsigned found = 0;
    for (uint32_t at = 0; at < device->processes; at++) {
        struct process *process = &device->process[at];
        if (process->mps != mps || (handle->part && process->instance != handle->part)) continue;
        if (infos && found < *room) infos[found] = (struct process_info){process->pid, process->memory, ~0u, ~0u};
        found++;
    }
    code = found > (infos ? *room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
    *room = found;
    return code;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *handle, unsigned *room, struct process_info *infos) {
    return list(handle, PROCESS_LIST, 0, room, infos);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(struct handle *handle, unsigned *room, struct process_info *infos) {
    return list(handle, PROCESS_LIST_V2, 0, room, infos);
}
EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct handle *handle, unsigned *room, struct process_info *infos) {
    return list(handle, MPS_LIST, 1, room, infos);
}
EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v2(struct handle *handle, unsigned *room, struct process_info *infos) {
    return list(handle, MPS_LIST_V2, 1, room, infos);
}

/* "One sample for each process that had some non-zero utilization since the time". Without any: NOT_FOUND or SUCCESS. */
struct utilization_sample { unsigned pid; unsigned long long stamp; unsigned sm, memory, encoder, decoder; };
EXPORT int nvmlDeviceGetProcessUtilization(struct handle *handle, struct utilization_sample *out, unsigned *room,
                                           unsigned long long since) {
    ENTER(PROCESS_UTILIZATION);
    unsigned found = 0;
    for (uint32_t at = 0; at < device->processes; at++) {
        struct process *process = &device->process[at];
        if (!process->busy || process->stamp <= since) continue;
        if (out && found < *room)
            out[found] = (struct utilization_sample){process->pid, process->stamp, process->share, 1, 0, 0};
        found++;
    }
    code = found > (out ? *room : 0) ? INSUFFICIENT_SIZE : found ? SUCCESS : (int)control->idle_code;
    *room = found;
    return code;
}

/* Samples since a time, one every 100 ms; NOT_FOUND without any. */
struct value_sample { unsigned long long stamp; uint64_t value; };
EXPORT int nvmlDeviceGetSamples(struct handle *handle, unsigned kind, unsigned long long since, int *type, unsigned *room,
                                struct value_sample *out) {
    ENTER(SAMPLED);
    if (kind < 1 || kind > 2) return NOT_SUPPORTED;
    unsigned found = 0;
    *type = 1;
    for (unsigned at = 0; at < 8; at++) {
        unsigned long long stamp = device->sampled_at + at * 100000ull;
        if (!device->sampled_at || stamp <= since || device->sampled[kind - 1][at] > 100) continue;
        if (out && found < *room) out[found] = (struct value_sample){stamp, device->sampled[kind - 1][at]};
        found++;
    }
    *room = found;
    return found ? SUCCESS : NOT_FOUND;
}
struct margin { unsigned version; int value; };
EXPORT int nvmlDeviceGetMarginTemperature(struct handle *handle, struct margin *value) {
    ENTER(MARGIN);
    if (value->version != 0x1000008) return misused(INVALID_ARGUMENT);
    value->value = (int)device->margin;
    return SUCCESS;
}
struct sram { unsigned version; unsigned long long total[3], parity, secded, corrected, buckets[5]; unsigned exceeded; };
EXPORT int nvmlDeviceGetSramEccErrorStatus(struct handle *handle, struct sram *value) {
    ENTER(SRAM);
    if (value->version != 0x1000068) return misused(INVALID_ARGUMENT);
    value->parity = device->sram[0], value->secded = device->sram[1], value->corrected = device->sram[2];
    value->exceeded = device->sram[3];
    return SUCCESS;
}
struct fabric { unsigned version; uint8_t cluster[16]; int status; uint32_t clique; uint8_t state; uint32_t health; };
EXPORT int nvmlDeviceGetGpuFabricInfoV(struct handle *handle, struct fabric *value) {
    ENTER(FABRIC);
    value->state = (uint8_t)device->fabric;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetNvLinkState(struct handle *handle, unsigned link, unsigned *value) {
    ENTER(LINK_STATE);
    *value = link >= device->links_down;
    return SUCCESS;
}

/* Accounting: off by default, and always off with MIG. A ring keeps the newest processes. Of several processes with one
   process id it answers for the newest. */
static struct accounted *accounted_of(struct device *device, uint32_t back) {
    return back < device->accounted_ever && back < ACCOUNTED
               ? &device->accounted[(device->accounted_ever - 1 - back) % ACCOUNTED] : NULL;
}
static int accounts(struct device *device) { return device->accounting && !device->mig; }
EXPORT int nvmlDeviceGetAccountingMode(struct handle *handle, unsigned *value) {
    ENTER(ACCOUNTING_MODE);
    *value = accounts(device);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetAccountingBufferSize(struct handle *handle, unsigned *value) {
    ENTER(ACCOUNTING);
    if (!accounts(device)) return NOT_SUPPORTED;
    *value = ACCOUNTED;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetAccountingPids(struct handle *handle, unsigned *room, unsigned *pids) {
    ENTER(ACCOUNTING);
    if (!accounts(device)) return NOT_SUPPORTED;
    unsigned found = 0;
    struct accounted *one;
    for (uint32_t back = 0; (one = accounted_of(device, back)); back++) {
        uint32_t newer = 0;
        while (newer < back && accounted_of(device, newer)->pid != one->pid) newer++;
        if (newer < back) continue;
        if (pids && found < *room) pids[found] = one->pid;
        found++;
    }
    code = found > (pids ? *room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
    *room = found;
    return code;
}
struct accounting_stats { unsigned busy, memory; unsigned long long most, time, start; unsigned running, reserved[5]; };
EXPORT int nvmlDeviceGetAccountingStats(struct handle *handle, unsigned pid, struct accounting_stats *stats) {
    ENTER(ACCOUNTING);
    if (!accounts(device)) return NOT_SUPPORTED;
    struct accounted *one;
    for (uint32_t back = 0; (one = accounted_of(device, back)); back++) {
        if (one->pid != pid) continue;
        *stats = (struct accounting_stats){one->busy, 1, 1 << 30, one->running ? 0 : one->time, one->start, one->running, {0}};
        return SUCCESS;
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetMigMode(struct handle *handle, unsigned *now, unsigned *later) {
    ENTER(MIG);
    *now = *later = device->mig;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct handle *handle, unsigned *value) {
    ENTER(MIG);
    (void)device;
    *value = INSTANCES;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *handle, unsigned at, struct handle **found) {
    ENTER(MIG);
    if (at >= INSTANCES || !device->instance[at].there) return NOT_FOUND;
    struct handle *part = &parts[session % SESSIONS][handle->index][at];
    *part = (struct handle){session, handle->index, at + 1};
    *found = part;
    return SUCCESS;
}
#define OF_PART(name, member) \
    EXPORT int name(struct handle *handle, unsigned *value) { \
        ENTER(MIG); \
        if (!handle->part) return INVALID_ARGUMENT; \
        *value = device->instance[handle->part - 1].member; \
        return SUCCESS; \
    }
OF_PART(nvmlDeviceGetGpuInstanceId, instance)
OF_PART(nvmlDeviceGetComputeInstanceId, place)
struct attributes { unsigned counts[6], slices, places; unsigned long long memory; };
EXPORT int nvmlDeviceGetAttributes_v2(struct handle *handle, struct attributes *value) {
    ENTER(MIG);
    if (!handle->part) return INVALID_ARGUMENT;
    struct instance *part = &device->instance[handle->part - 1];
    unsigned sharing = 0;
    for (unsigned at = 0; at < INSTANCES; at++)
        sharing += device->instance[at].there && device->instance[at].instance == part->instance;
    *value = (struct attributes){{0}, part->slices, part->slices / sharing, part->total >> 20};
    return SUCCESS;
}

EXPORT int nvmlGpmQueryDeviceSupport(struct handle *handle, unsigned *value) {
    ENTER(GPM_SUPPORT);
    value[1] = device->gpm_supported;
    return SUCCESS;
}
EXPORT int nvmlGpmSampleAlloc(struct sample **found) {
    if (!open_count) return UNINITIALIZED;
    for (int at = 0; at < SAMPLES; at++)
        if (!__atomic_exchange_n(&samples[at].used, 1, __ATOMIC_SEQ_CST)) {
            samples[at].filled = 0;
            count(&control->samples);
            *found = &samples[at];
            return SUCCESS;
        }
    return 20;
}
static int is_sample(struct sample *sample) { return sample >= samples && sample < samples + SAMPLES && sample->used; }
EXPORT int nvmlGpmSampleFree(struct sample *sample) {
    if (!open_count) return UNINITIALIZED;
    if (!is_sample(sample)) return misused(INVALID_ARGUMENT);
    __atomic_sub_fetch(&control->samples, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&sample->used, 0, __ATOMIC_SEQ_CST);
    return SUCCESS;
}
EXPORT int nvmlGpmSampleGet(struct handle *handle, struct sample *sample) {
    ENTER(GPM_SAMPLE);
    (void)device;
    if (!is_sample(sample)) return misused(INVALID_ARGUMENT);
    sample->filled = 1, sample->session = session, sample->index = handle->index, sample->part = 0;
    sample->turn = __atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}
EXPORT int nvmlGpmMigSampleGet(struct handle *handle, unsigned instance, struct sample *sample) {
    ENTER(MIG);
    if (!is_sample(sample) || handle->part) return misused(INVALID_ARGUMENT);
    for (uint32_t at = 0; at < INSTANCES; at++) {
        if (!device->instance[at].there || device->instance[at].instance != instance) continue;
        sample->filled = 1, sample->session = session, sample->index = handle->index, sample->part = at + 1;
        sample->turn = __atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
        return SUCCESS;
    }
    return NOT_FOUND;
}
struct gpm_metric { unsigned id; int code; double value; const char *names[3]; };
struct gpm_question { unsigned version, wanted; struct sample *first, *second; struct gpm_metric metrics[]; };
EXPORT int nvmlGpmMetricsGet(struct gpm_question *question) {
    if (!open_count) return UNINITIALIZED;
    int code = library_call(GPM_METRICS);
    if (code) return code;
    struct sample *first = question->first, *second = question->second;
    if (!is_sample(first) || !is_sample(second) || !first->filled || !second->filled || first->turn >= second->turn
        || first->index != second->index || first->part != second->part || first->session != session || second->session != session)
        return misused(INVALID_ARGUMENT);
    struct device *device = &control->device[first->index];
    for (unsigned at = 0; at < question->wanted; at++) {
        struct gpm_metric *metric = &question->metrics[at];
        if (device->gpm_end && metric->id >= device->gpm_end) return INVALID_ARGUMENT;
        metric->code = metric->id < METRICS ? device->metric[metric->id].code : NOT_SUPPORTED;
        metric->value = metric->id < METRICS ? device->metric[metric->id].value : 0;
        if (first->part) metric->value *= device->instance[first->part - 1].share;
    }
    return SUCCESS;
}

/* An event set belongs to a session. It receives the events of its registered GPUs; other events are lost. */
static struct set { uint32_t session, used, waits; uint64_t types[DEVICES]; } set;
EXPORT int nvmlEventSetCreate(struct set **found) {
    if (!open_count) return UNINITIALIZED;
    int code = library_call(EVENT_SET);
    if (code) return code;
    if (set.used && set.session == session) return misused(INVALID_ARGUMENT);
    set = (struct set){session, 1, 0, {0}};
    count(&control->sets);
    *found = &set;
    return SUCCESS;
}
EXPORT int nvmlEventSetFree(struct set *given) {
    if (!open_count) return UNINITIALIZED;
    if (given != &set || !set.used || set.session != session || set.waits) return misused(INVALID_ARGUMENT);
    set.used = 0;
    __atomic_sub_fetch(&control->sets, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetSupportedEventTypes(struct handle *handle, unsigned long long *types) {
    ENTER(EVENT_TYPES);
    *types = device->event_types;
    return SUCCESS;
}
EXPORT int nvmlDeviceRegisterEvents(struct handle *handle, unsigned long long types, struct set *given) {
    ENTER(REGISTER);
    if (given != &set || !set.used || set.session != session || !types) return misused(INVALID_ARGUMENT);
    if (types & ~(unsigned long long)device->event_types) return NOT_SUPPORTED;
    set.types[handle->index] = types;
    return SUCCESS;
}
struct event_data { struct handle *device; unsigned long long type, data; unsigned instance, place; };
EXPORT int nvmlEventSetWait_v2(struct set *given, struct event_data *found, unsigned milliseconds) {
    if (!open_count) return UNINITIALIZED;
    if (given != &set || !set.used || set.session != session) return misused(INVALID_ARGUMENT);
    set.waits = 1;
    int code = library_call(EVENT_WAIT);
    count(&control->waiting);
    control->asked = milliseconds;
    if (control->longest && control->longest < milliseconds) milliseconds = control->longest;
    for (unsigned passed = 0; !code && control->read == control->happened; passed++) {
        if (passed >= milliseconds) code = TIMEOUT;
        else usleep(1000);
    }
    while (!code) {
        if (control->read == control->happened) { code = TIMEOUT; break; }
        struct event *event = &control->event[control->read++ % EVENTS];
        if (!(set.types[event->index] & event->type)) continue;
        *found = (struct event_data){&handles[session % SESSIONS][event->index], event->type, event->data, event->instance,
                                     event->place};
        break;
    }
    __atomic_sub_fetch(&control->waiting, 1, __ATOMIC_SEQ_CST);
    set.waits = 0;
    return code;
}
