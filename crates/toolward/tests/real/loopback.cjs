// Preloaded into a Node server that would listen on every address: it listens only on loopback, and prints
// its address to stderr. With PORT=0 it uses a free port.
//
//     PORT=0 node --require loopback.cjs node_modules/.bin/mcp-server-everything streamableHttp
const net = require('node:net');
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
    if (typeof port === 'object' || typeof rest[0] === 'string') return listen.call(this, port, ...rest);
    this.once('listening', () => console.error(`loopback port ${this.address().port}`));
    return listen.call(this, Number(port), '127.0.0.1', ...rest);
};
