// The operators' page. The server has rendered all that is here at first; this
// keeps it up to date by GET /events. What comes from requests is only ever set as
// text, and no attribute but those named here is set from it.
'use strict';

(() => {
  const kept = 200; // requests that have ended
  const svgSpace = 'http://www.w3.org/2000/svg';

  // el makes an element. What it is given as text is text.
  function el(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function svg(name, attributes, text) {
    const made = document.createElementNS(svgSpace, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // setText leaves the document alone if nothing changes: selections and screen
  // readers stay where they are.
  function setText(node, text) {
    text = String(text);
    if (node.textContent !== text) node.textContent = text;
  }

  const ms = (n) => n < 1000 ? n.toFixed(1) + ' ms' : (n / 1000).toFixed(2) + ' s';
  const num = (n) => n.toFixed(1);
  const pad = (n) => String(n).padStart(2, '0');
  const clock = (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;

  // The server's clock may be in another zone: all times are shown in the reader's.
  function localTimes() {
    for (const time of document.querySelectorAll('time[datetime]')) {
      const at = new Date(time.dateTime);
      if (!isNaN(at)) {
        setText(time, clock(at));
        time.title = at.toString();
      }
    }
  }

  function duration(seconds) {
    const s = Math.floor(seconds), d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
    if (d) return `${d} d ${h} h`;
    if (h) return `${h} h ${m} min`;
    if (m) return `${m} min ${s % 60} s`;
    return `${s} s`;
  }

  // sync makes the children of a list those of the items: known ones are kept and
  // filled again, in the order of the items. The one with the focus keeps it.
  function sync(list, items, key, attribute, make, fill) {
    const known = new Map();
    for (const child of list.children) known.set(child.getAttribute(attribute), child);
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    let at = list.firstElementChild;
    for (const item of items) {
      let child = known.get(key(item));
      if (child) {
        known.delete(key(item));
      } else {
        child = make(item);
        child.setAttribute(attribute, key(item));
      }
      fill(child, item);
      if (child === at) at = at.nextElementSibling;
      else list.insertBefore(child, at);
    }
    for (const child of known.values()) child.remove();
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
  }

  // The state of the coordinator.

  function showStatus(s) {
    setText(document.getElementById('version'), s.version);
    const state = document.getElementById('state');
    const word = s.draining ? 'draining' : s.ready ? 'ready' : 'not ready';
    setText(state, s.reason ? `${word}: ${s.reason}` : word);
    state.className = 'state ' + (s.draining ? 'warn' : s.ready ? 'good' : 'bad');
    setText(document.getElementById('inflight'), s.inflight);
    const {finished, refused, failed} = s.totals;
    setText(document.getElementById('ended'), finished + (refused ? `, ${refused} refused` : '') + (failed ? `, ${failed} failed` : ''));
    setText(document.getElementById('detached'), s.detached);
    setText(document.getElementById('uptime'), duration(s.uptime_seconds));
    sync(document.getElementById('pipeline'), s.pipeline || [], (p) => p.name, 'data-phase', makePhase, fillPhase);
    sync(document.getElementById('breakers'), s.breakers || [], (b) => b.profile, 'data-profile', makeChip, (chip, b) => {
      chip.dataset.state = b.state;
      setText(chip.querySelector('.name'), b.profile);
      const wait = b.half_open_in_seconds ? `, half-open in ${num(b.half_open_in_seconds)} s` : '';
      setText(chip.querySelector('.value'), b.state + wait);
    });
    sync(document.getElementById('pools'), s.pools || [], (p) => p.name, 'data-pool', makeChip, (chip, p) => {
      setText(chip.querySelector('.name'), p.name);
      setText(chip.querySelector('.value'), `${p.busy} of ${p.size}, ${p.queued} of ${p.queue}`);
    });
    showQueue(s.queue);
    showCharts(s.chart || []);
  }

  function showQueue(q) {
    document.getElementById('queue').hidden = !q;
    setText(document.getElementById('queue-redis'), q ? q.redis : '');
    const facts = !q ? [] : [
      {name: 'waiting', text: `${q.waiting} of ${q.most_waiting}`},
      {name: 'redis', text: `${q.reachable ? 'answers' : 'does not answer'}, breaker ${q.breaker}`, state: q.reachable ? 'closed' : 'open'},
      {name: 'results', text: `${q.wakeup}, ${q.watched} watched`},
    ];
    sync(document.getElementById('queue-facts'), facts, (f) => f.name, 'data-fact', makeChip, (chip, f) => {
      if (f.state) chip.dataset.state = f.state;
      setText(chip.querySelector('.name'), f.name);
      setText(chip.querySelector('.value'), f.text);
    });
  }

  function makeChip() {
    const chip = el('li');
    chip.append(el('span', 'name'), ' ', el('span', 'value'));
    return chip;
  }

  function makePhase() {
    const card = el('li', 'phase'), running = el('p', 'running'), load = el('meter', 'load'), list = el('dl');
    running.append(el('b'), ' running');
    load.min = 0;
    for (const name of ['queued', 'busy', 'p50', 'p99', 'errors']) {
      const pair = el('div');
      pair.append(el('dt', '', name), el('dd', name));
      list.append(pair);
    }
    card.append(el('h3', 'name'), running, load, list);
    return card;
  }

  function fillPhase(card, p) {
    if (p.description) card.title = p.description;
    const set = (selector, text) => setText(card.querySelector(selector), text);
    set('.name', p.name);
    set('.running b', p.running);
    set('.queued', p.queued);
    set('.busy', `${p.busy} of ${p.capacity}`);
    set('.p50', ms(p.p50_ms));
    set('.p99', ms(p.p99_ms));
    set('.errors', `${p.errors_per_second.toFixed(2)}/s`);
    card.querySelector('.errors').classList.toggle('failing', p.errors_per_second > 0);
    const load = card.querySelector('meter');
    load.max = Math.max(1, p.capacity);
    load.value = p.busy;
    load.setAttribute('aria-label', `load of pool ${p.pool}`);
  }

  // Charts.

  const charts = [
    {title: 'Requests per second', unit: num, lines: [{name: 'requests', of: 'requests_per_second', ink: 'requests', area: true}]},
    {title: 'First token', unit: ms, gaps: true, lines: [
      {name: 'p50', of: 'first_token_p50_ms', ink: 'p50'},
      {name: 'p99', of: 'first_token_p99_ms', ink: 'p99', dashed: true}]},
    {title: 'Shed per second', unit: num, lines: [{name: 'shed', of: 'shed_per_second', ink: 'shed', area: true}]},
  ];

  function makeCharts() {
    const place = document.getElementById('charts');
    for (const chart of charts) {
      chart.drawing = svg('svg', {class: 'chart', role: 'img'});
      chart.value = el('span', 'value');
      const caption = el('figcaption', '', chart.title), figure = el('figure');
      for (const line of chart.lines) {
        if (chart.lines.length > 1) chart.value.append(el('span', `key ink-${line.ink}` + (line.dashed ? ' dashed' : '')));
        line.value = el('span');
        chart.value.append(line.value);
      }
      caption.append(chart.value);
      figure.append(caption, chart.drawing);
      place.append(figure);
    }
  }

  // niceMax is the next 1, 2 or 5 times a power of ten.
  function niceMax(n) {
    if (!(n > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(n));
    return [1, 2, 5, 10].find((step) => step * power >= n) * power;
  }

  function showCharts(points) {
    const place = document.getElementById('charts');
    place.hidden = false;
    document.getElementById('latest').hidden = true;
    for (const chart of charts) drawChart(chart, points);
  }

  function axisLabel(chart, n) {
    if (chart.unit === ms) return n < 1000 ? `${+n.toPrecision(3)} ms` : `${+(n / 1000).toPrecision(3)} s`;
    return String(+n.toPrecision(3));
  }

  function drawChart(chart, points) {
    const width = Math.max(200, chart.drawing.clientWidth), height = 132;
    const left = 48, right = width - 6, top = 8, bottom = height - 20;
    const all = chart.lines.flatMap((line) => points.map((p) => p[line.of]));
    const highest = Math.max(0, ...all), ceiling = niceMax(highest);
    const x = (i) => left + (right - left) * (points.length > 1 ? i / (points.length - 1) : 1);
    const y = (n) => bottom - (bottom - top) * n / ceiling;
    const parts = [];
    for (const share of [0, .5, 1]) {
      const at = y(ceiling * share);
      parts.push(svg('line', {class: 'grid', x1: left, x2: right, y1: at, y2: at}));
      parts.push(svg('text', {x: left - 6, y: at + 4, 'text-anchor': 'end'}, axisLabel(chart, ceiling * share)));
    }
    for (const share of points.length ? [0, 1 / 3, 2 / 3, 1] : []) {
      const i = Math.round((points.length - 1) * share), anchor = share === 0 ? 'start' : share === 1 ? 'end' : 'middle';
      parts.push(svg('text', {x: x(i), y: height - 4, 'text-anchor': anchor}, clock(new Date(points[i].at)).slice(0, 5)));
    }
    const said = [];
    for (const line of chart.lines) {
      // No first token in ten seconds is a gap in the line and not a zero.
      const runs = [[]];
      points.forEach((p, i) => {
        if (chart.gaps && !p[line.of]) runs.push([]);
        else runs.at(-1).push([x(i).toFixed(1), y(p[line.of]).toFixed(1)]);
      });
      let path = '';
      for (const run of runs) {
        if (!run.length) continue;
        path += 'M' + run.join('L') + (run.length === 1 ? 'h.1' : '');
        if (line.area && run.length > 1) {
          parts.push(svg('path', {class: `area ink-${line.ink}`, d: `M${run.join('L')}L${run.at(-1)[0]},${bottom}L${run[0][0]},${bottom}Z`}));
        }
      }
      parts.push(svg('path', {class: `curve ink-${line.ink}` + (line.dashed ? ' dashed' : ''), d: path}));
      const now = latest(chart, line, points), most = Math.max(0, ...points.map((p) => p[line.of]));
      const name = chart.lines.length > 1 ? line.name + ' ' : '';
      setText(line.value, name + now);
      said.push(`${name}now ${now}, at most ${chart.unit(most)}`);
    }
    chart.drawing.setAttribute('viewBox', `0 0 ${width} ${height}`);
    chart.drawing.setAttribute('aria-label', `${chart.title}, last 15 minutes: ${said.join('; ')}`);
    chart.drawing.replaceChildren(...parts);
  }

  // latest is the newest number there is.
  function latest(chart, line, points) {
    const last = chart.gaps ? points.findLast((p) => p[line.of]) : points.at(-1);
    return last ? chart.unit(last[line.of]) : '–';
  }

  // Requests.

  const columns = ['time', 'id', 'model', 'path', 'outcome', 'total', 'first', 'tokens', 'line'];
  const labels = {id: 'request', first: 'first byte', tokens: 'tokens in, out', line: 'timeline'};
  const numbers = ['total', 'first', 'tokens'];

  function makeRow(v) {
    const row = el('tr');
    for (const name of columns) {
      const cell = el('td', numbers.includes(name) ? `${name} n` : name);
      cell.dataset.label = labels[name] || name;
      row.append(cell);
    }
    const time = el('time'), link = el('a');
    time.dateTime = v.received;
    row.querySelector('.time').append(time);
    link.href = '/requests/' + encodeURIComponent(v.serial);
    row.querySelector('.id').append(link);
    row.querySelector('.outcome').append(el('span', 'badge'), ' ', el('span', 'detail'));
    row.querySelector('.line').append(svg('svg', {class: 'timeline', viewBox: '0 0 1000 10', preserveAspectRatio: 'none', role: 'img'}));
    return row;
  }

  function fillRow(row, v) {
    if (row.shown === v) return; // a request that has ended does not change
    row.shown = v;
    row.dataset.outcome = v.outcome;
    const set = (selector, text) => setText(row.querySelector(selector), text);
    const time = row.querySelector('time'), at = new Date(v.received);
    setText(time, clock(at));
    time.title = at.toString();
    set('.id a', v.request_id || v.serial);
    set('.model', v.model || '–');
    set('.path', v.path || '–');
    set('.badge', v.outcome);
    set('.detail', v.outcome === 'running' ? v.phase || '' : [v.status, v.code].filter(Boolean).join(' '));
    set('.total', ms(v.total_ms));
    set('.first', v.first_byte_ms ? ms(v.first_byte_ms) : '–');
    set('.tokens', v.tokens_in || v.tokens_out ? `${v.tokens_in || '–'}, ${v.tokens_out || '–'}` : '–');
    const bars = v.bars || [], line = row.querySelector('.timeline');
    const place = (moment) => v.total_ms > 0 ? Math.min(1000, Math.max(0, 1000 * moment / v.total_ms)) : 0;
    line.replaceChildren(...bars.map((b) => {
      const width = Math.max(2, place(b.until_ms) - place(b.from_ms));
      const bar = svg('rect', {class: `bar k-${b.kind}`, x: Math.min(place(b.from_ms), 1000 - width), y: 0, width, height: 10});
      bar.append(svg('title', {}, `${b.label}: ${ms(b.from_ms)} to ${ms(b.until_ms)}`));
      return bar;
    }));
    line.setAttribute('aria-label', 'timeline:' + bars.map((b) => ` ${b.label} from ${ms(b.from_ms)} to ${ms(b.until_ms)};`).join(''));
  }

  // matches is what the server's filter does too.
  function matches(filter, v) {
    const has = (part, ...texts) => !part || texts.some((text) => (text || '').toLowerCase().includes(part.toLowerCase()));
    return has(filter.id, v.serial, v.request_id, v.trace_id) && has(filter.model, v.model) &&
      (!filter.path || filter.path === (v.path || 'none')) && (!filter.outcome || filter.outcome === v.outcome);
  }

  const data = {status: null, running: [], finished: []};
  let paused = false;

  function take(status, running, finished) {
    const ended = new Set(finished.map((v) => v.serial));
    data.status = status;
    data.finished = finished.slice(0, kept);
    data.running = running.filter((v) => !ended.has(v.serial));
    if (!paused) show();
  }

  function show() {
    if (!data.status) return;
    showStatus(data.status);
    showRequests();
  }

  function showRequests() {
    if (!data.status) return; // what the server has rendered stays
    const filter = Object.fromEntries(new FormData(document.getElementById('filter')));
    const all = [...data.running, ...data.finished], chosen = all.filter((v) => matches(filter, v));
    const body = document.querySelector('#requests tbody');
    sync(body, chosen, (v) => v.serial, 'data-serial', makeRow, fillRow);
    const more = data.status.running_not_shown ? `, ${data.status.running_not_shown} more are running` : '';
    setText(document.getElementById('shown'), (chosen.length === all.length ? `${all.length} shown` : `${chosen.length} of ${all.length} shown`) + more);
    const nothing = document.getElementById('nothing');
    nothing.hidden = chosen.length > 0;
    setText(nothing, all.length ? 'No request is as the filter says.' : 'No requests.');
  }

  function setUpFilter() {
    const form = document.getElementById('filter');
    const apply = () => {
      // The address keeps the filter, for the next load and to hand on.
      const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
      history.replaceState(null, '', query.size ? `/?${query}` : '/');
      showRequests();
    };
    form.addEventListener('input', apply);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      apply();
    });
    document.getElementById('clear').addEventListener('click', (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      for (const field of form.elements) if (field.name) field.value = '';
      apply();
    });
    document.addEventListener('keydown', (event) => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest('input, select, textarea')) return;
      event.preventDefault();
      form.elements.id.focus();
      form.elements.id.select();
    });
  }

  function setUpPause() {
    const button = document.getElementById('pause');
    button.hidden = false;
    button.addEventListener('click', () => {
      paused = !paused;
      setText(button, paused ? 'Go on' : 'Pause');
      button.setAttribute('aria-pressed', paused);
      if (!paused) show();
    });
  }

  // The connection.

  const silence = 5000; // ms without an event after which it counts as lost
  const again = 2000; // ms after which an answer that was no stream is asked for again

  function connect() {
    const notice = document.getElementById('connection');
    let asOf = null, timer = 0;
    const lost = () => {
      clearTimeout(timer);
      notice.className = 'lost';
      setText(notice, asOf ? `connection lost, showing data as of ${clock(asOf)}` : 'connection lost, showing data as of the load');
    };
    const heard = () => {
      asOf = new Date();
      clearTimeout(timer);
      timer = setTimeout(lost, silence);
      notice.className = 'live';
      setText(notice, 'live');
    };
    let source = null;
    const open = () => {
      if (source && source.readyState !== EventSource.CLOSED) return;
      source = new EventSource('/events');
      source.addEventListener('snapshot', (event) => {
        heard();
        const {status, requests} = JSON.parse(event.data), all = requests || [];
        take(status, all.filter((v) => v.outcome === 'running'), all.filter((v) => v.outcome !== 'running'));
      });
      source.addEventListener('update', (event) => {
        heard();
        const {status, running, finished} = JSON.parse(event.data);
        const fresh = new Set((finished || []).map((v) => v.serial));
        take(status, running || [], [...finished || [], ...data.finished.filter((v) => !fresh.has(v.serial))]);
      });
      source.addEventListener('error', () => {
        lost();
        // It comes back by itself unless it was refused.
        if (source.readyState === EventSource.CLOSED) setTimeout(() => document.hidden || open(), again);
      });
    };
    // A browser has few connections to one host: tabs that nobody sees give theirs
    // up, and get all there is when they are seen again.
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) {
        open();
        return;
      }
      clearTimeout(timer);
      source?.close();
    });
    open();
  }

  localTimes();
  if (document.getElementById('requests')) {
    const uptime = document.getElementById('uptime');
    setText(uptime, duration(+uptime.dataset.seconds));
    makeCharts();
    setUpFilter();
    setUpPause();
    connect();
    let timer = 0;
    window.addEventListener('resize', () => {
      clearTimeout(timer);
      timer = setTimeout(() => data.status && showCharts(data.status.chart || []), 100);
    });
  }
})();
