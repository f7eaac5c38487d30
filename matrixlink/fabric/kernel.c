/* The sharing of matrixlink/fabric in C, for what has to be done thousands of times: rates kept up to date while flows
 * come and go. Progressive filling as in sharing.py, but only of what a change can touch: a flow that leaves at level x,
 * or one that arrives and will stop at level x, changes nobody below x, since up to there the filling goes as before.
 *
 * Floors are set aside first (guarantee plus share): `room` is a link's capacity less the floors on it. Each link keeps
 * its flows in a doubly linked list of entries; entry f * width + i is the i-th link of flow f, and width is 1 << shift.
 * -1 ends a list. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TIE 1e-12
#define NEAR 1e-9 /* levels this close below the bound are looked at again, against rounding */

typedef struct { double key; int32_t what; } Entry; /* what: a link, or links + flow for one that meets its ceiling */

typedef struct {
    int32_t flows, links, width, shift;
    int32_t *path, *length, *next, *prev, *head;
    double *room, *weight, *floor, *limit, *share, *level;
    uint8_t *alive, *in_set, *in_near, *fixed;
    int32_t *set, *near, *rising;
    int32_t set_size, near_size, to_fix;
    double *left, *pull;
    Entry *heap;
    int32_t heap_size;
    void *memory;
} Fabric;

void fabric_free(Fabric *f) {
    if (f) free(f->memory);
    free(f);
}

Fabric *fabric_new(int32_t flows, int32_t links, int32_t width, const double *capacity) {
    Fabric *f = calloc(1, sizeof(Fabric));
    if (!f) return NULL;
    while (1 << f->shift < width) f->shift++;
    width = 1 << f->shift;
    size_t n = flows + 1, l = links + 1, e = n * width;
    size_t doubles = 5 * n + 3 * l, ints = 3 * e + 2 * n + 3 * l, bytes = 3 * n + l;
    size_t total = (n + l) * sizeof(Entry) + doubles * 8 + ints * 4 + bytes;
    char *at = f->memory = calloc(total, 1);
    if (!at) { free(f); return NULL; }
    f->flows = flows, f->links = links, f->width = width;
#define TAKE(name, type, count) f->name = (type *)at, at += (count) * sizeof(type)
    TAKE(heap, Entry, n + l);
    TAKE(weight, double, n); TAKE(floor, double, n); TAKE(limit, double, n); TAKE(share, double, n);
    TAKE(level, double, n);
    TAKE(room, double, l); TAKE(left, double, l); TAKE(pull, double, l);
    TAKE(path, int32_t, e); TAKE(next, int32_t, e); TAKE(prev, int32_t, e);
    TAKE(length, int32_t, n); TAKE(set, int32_t, n);
    TAKE(head, int32_t, l); TAKE(near, int32_t, l); TAKE(rising, int32_t, l);
    TAKE(alive, uint8_t, n); TAKE(in_set, uint8_t, n); TAKE(fixed, uint8_t, n); TAKE(in_near, uint8_t, l);
#undef TAKE
    for (int32_t k = 0; k < links; k++) f->head[k] = -1, f->room[k] = capacity[k];
    return f;
}

static inline double least(double a, double b) { return a < b ? a : b; }
static inline double most(double a, double b) { return a > b ? a : b; }

static void push(Fabric *f, double key, int32_t what) {
    int32_t at = f->heap_size++;
    for (int32_t up; at && f->heap[up = (at - 1) / 2].key > key; at = up) f->heap[at] = f->heap[up];
    f->heap[at] = (Entry){key, what};
}

static void sink(Fabric *f, Entry entry) { /* put an entry in place of the first */
    int32_t at = 0, down;
    while ((down = 2 * at + 1) < f->heap_size) {
        if (down + 1 < f->heap_size && f->heap[down + 1].key < f->heap[down].key) down++;
        if (f->heap[down].key >= entry.key) break;
        f->heap[at] = f->heap[down], at = down;
    }
    f->heap[at] = entry;
}

static void touch(Fabric *f, int32_t link) {
    if (!f->in_near[link]) f->in_near[link] = 1, f->near[f->near_size++] = link;
}

static void fix(Fabric *f, int32_t flow, double share) {
    f->fixed[flow] = 1, f->to_fix--;
    f->share[flow] = share, f->level[flow] = share / f->weight[flow];
    const int32_t *path = f->path + (size_t)flow * f->width;
    for (int32_t i = 0; i < f->length[flow]; i++) {
        f->left[path[i]] -= share, f->pull[path[i]] -= f->weight[flow], f->rising[path[i]]--;
    }
}

static double fill_level(const Fabric *f, int32_t link, double level) {
    double now = f->left[link] / f->pull[link];
    return now > level ? now : level;
}

/* Share anew among the flows at or above `bound` that are joined to the touched links through one another. */
static void refill(Fabric *f, double bound) {
    int32_t w = f->width;
    f->set_size = 0, f->heap_size = 0;
    bound *= 1 - NEAR;
    for (int32_t n = 0; n < f->near_size; n++)
        for (int32_t e = f->head[f->near[n]]; e >= 0; e = f->next[e]) {
            int32_t flow = e >> f->shift;
            if (f->in_set[flow] || f->level[flow] < bound) continue;
            f->in_set[flow] = 1, f->fixed[flow] = 0, f->set[f->set_size++] = flow;
            for (int32_t i = 0; i < f->length[flow]; i++) touch(f, f->path[(size_t)flow * w + i]);
        }
    for (int32_t n = 0; n < f->near_size; n++) {
        int32_t link = f->near[n];
        double left = f->room[link], pull = 0;
        int32_t rising = 0;
        for (int32_t e = f->head[link]; e >= 0; e = f->next[e]) {
            int32_t flow = e >> f->shift;
            if (f->in_set[flow]) pull += f->weight[flow], rising++;
            else left -= f->share[flow];
        }
        f->left[link] = left, f->pull[link] = pull, f->rising[link] = rising;
        if (rising) push(f, fill_level(f, link, 0), link);
    }
    for (int32_t n = 0; n < f->set_size; n++) {
        int32_t flow = f->set[n];
        if (f->limit[flow] < INFINITY) push(f, f->limit[flow] / f->weight[flow], f->links + flow);
    }
    double level = 0;
    f->to_fix = f->set_size;
    while (f->to_fix && f->heap_size) {
        Entry top = f->heap[0];
        if (top.what < f->links && f->rising[top.what]) {
            double now = fill_level(f, top.what, level);
            if (now > top.key) { sink(f, (Entry){now, top.what}); continue; }
            level = now;
            for (int32_t e = f->head[top.what]; e >= 0; e = f->next[e]) {
                int32_t flow = e >> f->shift;
                if (f->in_set[flow] && !f->fixed[flow]) {
                    double share = f->weight[flow] * level;
                    fix(f, flow, share < f->limit[flow] ? share : f->limit[flow]);
                }
            }
        } else if (top.what >= f->links && !f->fixed[top.what - f->links]) {
            if (top.key > level) level = top.key;
            fix(f, top.what - f->links, f->limit[top.what - f->links]);
        }
        if (--f->heap_size) sink(f, f->heap[f->heap_size]);
    }
    for (int32_t n = 0; n < f->set_size; n++) f->in_set[f->set[n]] = 0;
    for (int32_t n = 0; n < f->near_size; n++) f->in_near[f->near[n]] = 0;
    f->near_size = 0;
}

/* The level at which the link fills when those below it stay and the others, with `more` weight, rise together. */
static double meets(const Fabric *f, int32_t link, double more) {
    double level = 0, before = -1;
    while (level > before) {
        double left = f->room[link], pull = more;
        for (int32_t e = f->head[link]; e >= 0; e = f->next[e]) {
            int32_t flow = e >> f->shift;
            if (f->level[flow] < level) left -= f->share[flow];
            else pull += f->weight[flow];
        }
        before = level, level = pull > 0 ? (left > 0 ? left / pull : 0) : INFINITY;
    }
    return before > 0 ? before : 0;
}

static void join(Fabric *f, int32_t flow, const int32_t *path, int32_t length, double weight, double floor, double ceiling) {
    f->alive[flow] = 1, f->length[flow] = length;
    f->weight[flow] = weight, f->floor[flow] = floor, f->limit[flow] = ceiling - floor;
    f->share[flow] = length ? 0 : f->limit[flow], f->level[flow] = INFINITY;
    for (int32_t i = 0; i < length; i++) {
        int32_t link = path[i], e = flow * f->width + i;
        f->path[e] = link, f->prev[e] = -1, f->next[e] = f->head[link];
        if (f->head[link] >= 0) f->prev[f->head[link]] = e;
        f->head[link] = e, f->room[link] -= floor;
    }
}

static void leave(Fabric *f, int32_t flow) {
    f->alive[flow] = 0;
    for (int32_t i = 0; i < f->length[flow]; i++) {
        int32_t e = flow * f->width + i, link = f->path[e];
        if (f->prev[e] >= 0) f->next[f->prev[e]] = f->next[e];
        else f->head[link] = f->next[e];
        if (f->next[e] >= 0) f->prev[f->next[e]] = f->prev[e];
        f->room[link] += f->floor[flow];
        touch(f, link);
    }
}

/* All flows at once; the shares are then in `share`. */
void fabric_fill_all(Fabric *f, const int64_t *starts, const int32_t *links, const double *weight, const double *floor,
                     const double *ceiling) {
    for (int32_t flow = 0; flow < f->flows; flow++)
        join(f, flow, links + starts[flow], (int32_t)(starts[flow + 1] - starts[flow]), weight[flow], floor[flow], ceiling[flow]);
    for (int32_t link = 0; link < f->links; link++)
        if (f->head[link] >= 0) touch(f, link);
    refill(f, 0);
}

/* One arrival; returns how many flows were looked at, which are then in `set`. */
int32_t fabric_add(Fabric *f, int32_t flow, const int32_t *path, int32_t length, double weight, double floor, double ceiling) {
    double bound = INFINITY;
    for (int32_t i = 0; i < length; i++) f->room[path[i]] -= floor;
    for (int32_t i = 0; i < length; i++) bound = least(bound, meets(f, path[i], weight));
    for (int32_t i = 0; i < length; i++) f->room[path[i]] += floor;
    join(f, flow, path, length, weight, floor, ceiling);
    for (int32_t i = 0; i < length; i++) touch(f, path[i]);
    refill(f, bound);
    return f->set_size;
}

int32_t fabric_remove(Fabric *f, int32_t flow) {
    leave(f, flow);
    refill(f, f->level[flow]);
    return f->set_size;
}

int32_t fabric_set_capacity(Fabric *f, int32_t link, double change) {
    double bound = INFINITY, highest = 0;
    for (int32_t e = f->head[link]; e >= 0; e = f->next[e]) highest = most(highest, f->level[e >> f->shift]);
    f->room[link] += change;
    bound = change < 0 ? meets(f, link, 0) : highest;
    touch(f, link);
    refill(f, bound);
    return f->set_size;
}

double *fabric_shares(Fabric *f) { return f->share; }
int32_t *fabric_set_of(Fabric *f) { return f->set; }

/* Flows to their ends. `order` lists flows by start; a flow that ends within `window` after a moment gives its place up
 * at that moment, its end being where its present rate takes it. Returns the number of moments rates were computed at. */
int64_t fabric_run(Fabric *f, const int64_t *starts, const int32_t *links, const double *weight, const double *floor,
                   const double *ceiling, const double *size, const double *start, const int32_t *order, double window,
                   double *end) {
    int32_t waiting = 0, live = 0;
    int64_t solves = 0;
    double now = 0;
    size_t n = f->flows + 1;
    double *left = malloc(4 * n * sizeof(double)), *since = left + n, *due = left + 2 * n, *rate = left + 3 * n;
    int32_t *running = malloc(2 * n * sizeof(int32_t)), *place = running + n;
    if (!left || !running) { solves = -1; goto done; }
    while (live || waiting < f->flows) {
        double moment = waiting < f->flows ? start[order[waiting]] : INFINITY;
        for (int32_t n = 0; n < live; n++) moment = least(moment, due[n]);
        if (moment == INFINITY) break;
        if (moment < now) moment = now;
        double until = moment + moment * TIE + window, bound = INFINITY;
        int32_t changed = 0;
        for (int32_t n = 0; n < live;) {
            int32_t flow = running[n];
            if (due[n] > until) { n++; continue; }
            end[flow] = due[n];
            bound = least(bound, f->level[flow]);
            leave(f, flow);
            changed = 1, live--;
            running[n] = running[live], due[n] = due[live], place[running[n]] = n;
        }
        while (waiting < f->flows && start[order[waiting]] <= moment) {
            int32_t flow = order[waiting++], length = (int32_t)(starts[flow + 1] - starts[flow]);
            const int32_t *path = links + starts[flow];
            if (size[flow] <= 0) { end[flow] = start[flow]; continue; }
            join(f, flow, path, length, weight[flow], floor[flow], ceiling[flow]);
            left[flow] = size[flow], since[flow] = moment, end[flow] = INFINITY;
            rate[flow] = length ? 0 : ceiling[flow];
            for (int32_t i = 0; i < length; i++) touch(f, path[i]), bound = 0;
            running[live] = flow, place[flow] = live, changed = 1;
            due[live++] = rate[flow] > 0 ? moment + size[flow] / rate[flow] : INFINITY;
        }
        now = moment;
        if (!changed) continue;
        solves += live > 0;
        refill(f, bound);
        for (int32_t n = 0; n < f->set_size; n++) { /* nobody else has a new rate; theirs is one until it changes */
            int32_t flow = f->set[n];
            double now_at = f->floor[flow] + f->share[flow];
            if (now_at == rate[flow]) continue;
            left[flow] -= rate[flow] * (now - since[flow]);
            since[flow] = now, rate[flow] = now_at;
            due[place[flow]] = now_at > 0 ? now + most(left[flow], 0) / now_at : INFINITY;
        }
    }
done:
    free(left), free(running);
    return solves;
}
