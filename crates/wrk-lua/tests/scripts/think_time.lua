-- Wait between 5 and 25 ms before each request.
function delay()
   return math.random(5, 25)
end
